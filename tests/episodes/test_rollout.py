import gymnasium
import numpy as np
import pytest

from pyes import networks, tasks
from pyes.episodes.rollout import Rollout
from pyes.networks import ActionDecoder
from pyes.networks.linear import LinearConfig
from pyes.tasks.gymnasium import GymnasiumConfig


@pytest.mark.parametrize("env_id", ["LunarLanderContinuous-v3", "CartPole-v1", "BipedalWalker-v3"])
def test_rollout_equals_a_plain_loop_with_torch(env_id):
    """The same episode, stepped by Gymnasium's own wrappers with actions from the torch module."""
    import torch

    from pyes.networks.torch.modules import policy_module

    with tasks.make(GymnasiumConfig(env_id=env_id)) as task:
        head = ActionDecoder.for_space(task.action_space)
        spec, theta = networks.build(LinearConfig(), task.observation_size, head, seed=1, observation_clip=5.0)
        rollout = Rollout(task, spec.runner())
        rollout.runner.load(theta)
        rollout.runner.begin_episode(0, 0, 0, 0)
        total, length = rollout.run(11, task.max_timesteps)
        module = policy_module(spec.program, theta)
    env = gymnasium.make(env_id)
    observation, _ = env.reset(seed=11)
    expected, steps, over = 0.0, 0, False
    while not over:
        with torch.no_grad():
            output = module(torch.from_numpy(observation)).numpy()
        action = int(output.argmax()) if head.mode == "argmax" else np.clip(output, head.low, head.high).astype("f4")
        observation, reward, terminated, truncated, _ = env.step(action)
        expected, steps, over = expected + float(reward), steps + 1, terminated or truncated
    env.close()
    assert length == steps
    assert total == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_limit_cuts_the_episode():
    with tasks.make(GymnasiumConfig(env_id="Pendulum-v1")) as task:
        head = ActionDecoder.for_space(task.action_space)
        spec, theta = networks.build(LinearConfig(), 3, head, seed=1, observation_clip=5.0)
        rollout = Rollout(task, spec.runner())
        rollout.runner.load(theta)
        rollout.runner.begin_episode(0, 0, 0, 0)
        assert rollout.run(0, 17)[1] == 17
