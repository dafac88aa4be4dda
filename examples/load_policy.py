"""Load the policy of a run, and run episodes with it.

python examples/load_policy.py RUN

RUN is a run directory on a Gymnasium environment, as printed by `pyes train`. Settings of the task such as frame_skip
are ignored here; `pyes evaluate RUN` applies them.
"""

import sys

import gymnasium

import pyes


def main(run: str) -> None:
    policy = pyes.load(run)
    print(f"{len(policy.theta)} parameters after {policy.generation} generations on {policy.task['env_id']}")
    env = gymnasium.make(policy.task["env_id"], **policy.task["env_kwargs"])
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
