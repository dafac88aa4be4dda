"""Load the policy of a run, and run episodes with it.

python examples/load_policy.py RUN

RUN is a run directory, as printed by `pyes train`.
"""

import os
import sys

import pyes


def main(run: str) -> None:
    sys.path.insert(0, os.getcwd())  # where an environment of your own may lie
    policy = pyes.load(run)
    print(f"{len(policy.theta)} parameters after {policy.generation} generations")
    env = pyes.make_env(run)
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        policy.reset()
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total += float(reward)
            over = terminated or truncated
        print(f"seed {seed}: return {total:.1f}")
    env.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
