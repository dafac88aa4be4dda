"""Ask and tell: maximise a function without a simulator, a worker or a file.

python examples/ask_tell.py
"""

import numpy as np

import pyes

TARGET = np.array([0.5, 0.1, -0.3])


def function(theta: np.ndarray) -> float:
    """Return minus the squared distance to the target: 0 at most."""
    return -float(np.sum((theta - TARGET) ** 2))


def main() -> None:
    es = pyes.OpenAIES(np.zeros(3, np.float32), population_size=50, sigma=0.1, learning_rate=0.05)
    for generation in range(200):
        population = es.ask()
        returns = [function(es.member(i)) for i in range(len(population))]
        es.tell(returns)
        if generation % 50 == 0:
            print(f"generation {generation:>3}  mean return {np.mean(returns):.4f}  center {function(es.theta):.4f}")
    print(f"theta {es.theta}, target {TARGET}, return {function(es.theta):.6f}")


if __name__ == "__main__":
    main()
