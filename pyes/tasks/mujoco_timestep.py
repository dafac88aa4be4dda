"""Timesteps of Gymnasium's MuJoCo environments in C: the engine is called without Python.

Owns what each environment observes, what its reward is made of and when it ends, for `pyes._core.MujocoTimestep`; and
the check that both give the same bits. Knows no struct of MuJoCo: addresses are those of functions in the loaded
library, of the model and the data, and of NumPy's views of the data.
Must not know when it is used. Invariant: what cannot be described, or differs, is None, and Python steps it.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes._core import CompiledEnvironment, MujocoTimestep
from pyes.system.libraries import address_of, library_of, of_libm
from pyes.tasks.base import Task
from pyes.tasks.parity import verified_in_c

Array = NDArray[np.float64]
Description = dict[str, Any]

_INF = float("inf")
_MOST = sys.float_info.max
#: Arguments of every environment that change what is drawn, the model, or what Python does: its reset.
_COMMON = {
    *("xml_file", "frame_skip", "reset_noise_scale", "default_camera_config", "width", "height", "camera_id"),
    *("camera_name", "max_geom", "visual_options"),
}


class _Unsuited(Exception):
    """An environment that C cannot step."""


def timestep_in_c(env: Any, task: Task, frame_skip: int, given: set[str]) -> CompiledEnvironment | None:
    """Return an environment in C with the timesteps of a task, or None.

    Parameters
    ----------
    env : gymnasium.Env
        The environment of the task, without any wrapper; it is stepped in place.
    task : Task
        What the result must equal.
    frame_skip : int
        Steps of the environment in a timestep of the task.
    given : set of str
        Arguments that the environment was made with; one that is not known here makes the result None.
    """
    return verified_in_c(task, lambda: CompiledEnvironment(*_described(env, given, frame_skip)))


def _described(env: Any, given: set[str], frame_skip: int) -> tuple[int, int, "_Simulator"]:
    """Return the arguments of `CompiledEnvironment`."""
    kind = f"{type(env).__module__}.{type(env).__qualname__}"
    describe = _KINDS.get(kind)
    if describe is None:
        raise _Unsuited(kind)
    options = _Options(env)
    description = describe(env, options)
    if not given <= options.read | _COMMON:
        raise _Unsuited(given)
    timestep = MujocoTimestep(
        engine=(*_engine("contact" in description), env.model._address, env.data._address),
        clock=_clock(),
        frames=env.frame_skip,
        control=env.data.ctrl,
        fused=of_libm("fma") if _rounds_once("mass" in description) else 0,
        **description,
    )
    return timestep.address, frame_skip, _Simulator(env, timestep)


class _Simulator:
    """What Python does when an episode begins, and the owner of what C reads."""

    def __init__(self, env: Any, timestep: MujocoTimestep) -> None:
        self._env = env
        self._timestep = timestep

    def begin(self, seed: int) -> None:
        """Reset the environment."""
        self._env.reset(seed=seed)


# The engine, NumPy and libm


def _engine(forces: bool) -> tuple[int, int]:
    """Return the addresses of mj_step and, for an environment that reads forces, of mj_rnePostConstraint."""
    import mujoco

    library = library_of(mujoco._functions)
    return address_of(library.mj_step), address_of(library.mj_rnePostConstraint) if forces else 0


def _clock() -> tuple[int, int]:
    """Return the address of mjcb_time and of the function there, or zeros if it is none or the user's own."""
    import mujoco

    clock = ctypes.c_void_p.in_dll(library_of(mujoco._functions), "mjcb_time")
    if clock.value is None or mujoco.get_mjcb_time() is not None:
        return 0, 0
    return ctypes.addressof(clock), clock.value


def _rounds_once(by_einsum: bool) -> bool:
    """Whether NumPy adds a product to a sum with one rounding on this machine, in einsum or in norm.

    It depends on the processor's instructions. Few sums differ by it, so that a comparison of episodes may miss it.
    """
    factor = 1 + 2.0**-27
    rounded = factor * factor  # without its last bit
    left, right = np.array([1, factor, 0]), np.array([-rounded, factor, 0])
    total = np.einsum("b,bj->j", left, np.stack([right] * 3, axis=1))[0] if by_einsum else left.dot(right)
    return bool(total != 0)


class _Ufunc(ctypes.Structure):
    """A ufunc, as NumPy's public header has it: PyUFuncObject."""

    _fields_ = (
        ("head", ctypes.c_char * object.__basicsize__),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
    )


def _loop(ufunc: Any) -> tuple[int, int]:
    """Return the addresses of the inner loop of a ufunc of one double, and of its data."""
    header = _Ufunc.from_address(id(ufunc))
    if (header.nin, header.nout, header.nargs, header.ntypes) != (1, 1, 2, len(ufunc.types)):
        raise _Unsuited(ufunc)
    index = ufunc.types.index("d->d")
    return header.functions[index] or 0, header.data[index] or 0


# The environments: gymnasium/envs/mujoco/*_v5.py


class _Options:
    """Reads the arguments of an environment that it has kept, of the types that C knows."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.read: set[str] = set()

    def _of_type(self, name: str, types: tuple[type, ...]) -> Any:
        self.read.add(name)
        value = getattr(self._env, f"_{name}")
        if type(value) not in types:
            raise _Unsuited(name)
        return value

    def number(self, name: str) -> float:
        return float(self._of_type(name, (int, float)))

    def single(self, name: str) -> float:
        """Return a number that NumPy takes as a float32, since it is multiplied by one."""
        return float(np.float32(self.number(name)))

    def flag(self, name: str) -> bool:
        return bool(self._of_type(name, (bool,)))

    def ends(self, name: str) -> tuple[float, float]:
        low, high = self._of_type(name, (list, tuple))
        if not {type(low), type(high)} <= {int, float}:
            raise _Unsuited(name)
        return float(low), float(high)

    def body(self, name: str) -> Any:
        return self._of_type(name, (int, str))


def _part(
    values: Array, *, minus: Array | None = None, by: Any = None, ends: tuple[float, float] = (-_INF, _INF)
) -> Any:
    """Return a part of an observation."""
    return (values, minus, None if by is None else _loop(by), *ends)


def _state(env: Any, options: _Options, skipped: int, ends: tuple[float, float] = (-_INF, _INF)) -> list[Any]:
    """Return the parts that most robots observe: where their joints are, and how fast they move, clipped."""
    hidden = skipped if options.flag("exclude_current_positions_from_observation") else 0
    return [_part(env.data.qpos[hidden:]), _part(env.data.qvel, ends=ends)]


def _finite(env: Any) -> list[Any]:
    return [(each, -_MOST, _MOST, True) for each in (env.data.qpos, env.data.qvel)]


def _run(env: Any, options: _Options) -> Description:
    """Return the reward of robots that run along x."""
    return {
        "reward": "run",
        "place": env.data.qpos[:1],
        "seconds": env.dt,
        "speed_weight": options.number("forward_reward_weight"),
        "effort_weight": options.single("ctrl_cost_weight"),
        "limits": [],
        "falls": False,
    }


def _may_fall(options: _Options, limits: list[Any]) -> Description:
    return {
        "health_reward": options.number("healthy_reward"),
        "limits": limits,
        "falls": options.flag("terminate_when_unhealthy"),
    }


def _half_cheetah(env: Any, options: _Options) -> Description:
    return {**_run(env, options), "observation": _state(env, options, 1)}


def _swimmer(env: Any, options: _Options) -> Description:
    return {**_run(env, options), "observation": _state(env, options, 2)}


def _walker(env: Any, options: _Options) -> Description:
    z, angle = options.ends("healthy_z_range"), options.ends("healthy_angle_range")
    limits = [(env.data.qpos[1:2], *z, False), (env.data.qpos[2:3], *angle, False)]
    return {
        **_run(env, options),
        **_may_fall(options, limits),
        "observation": _state(env, options, 1, (-10.0, 10.0)),
    }


def _hopper(env: Any, options: _Options) -> Description:
    description = _walker(env, options)
    ends = options.ends("healthy_state_range")
    description["limits"] += [(each, *ends, False) for each in (env.data.qpos[2:], env.data.qvel)]
    return description


def _ant(env: Any, options: _Options) -> Description:
    ends = options.ends("contact_force_range")
    observation = _state(env, options, 2)
    if options.flag("include_cfrc_ext_in_observation"):
        observation.append(_part(env.data.cfrc_ext[1:], ends=ends))
    limits = [*_finite(env), (env.data.qpos[2:3], *options.ends("healthy_z_range"), True)]
    return {
        **_run(env, options),
        **_may_fall(options, limits),
        "observation": observation,
        "place": env.data.body(options.body("main_body")).xpos[:1],
        "contact": (env.data.cfrc_ext, options.number("contact_cost_weight"), ends, (-_INF, _INF)),
    }


def _whole_body(env: Any, options: _Options) -> list[Any]:
    """Return what a humanoid observes."""
    data = env.data
    parts = {"cinert": data.cinert[1:], "cvel": data.cvel[1:], "qfrc_actuator": data.qfrc_actuator[6:]}
    parts["cfrc_ext"] = data.cfrc_ext[1:]
    shown = [_part(values) for name, values in parts.items() if options.flag(f"include_{name}_in_observation")]
    return _state(env, options, 2) + shown


def _humanoid(env: Any, options: _Options) -> Description:
    every, costs = (-_INF, _INF), options.ends("contact_cost_range")
    return {
        **_run(env, options),
        **_may_fall(options, [(env.data.qpos[2:3], *options.ends("healthy_z_range"), False)]),
        "observation": _whole_body(env, options),
        "mass": env.model.body_mass,
        "centers": env.data.xipos,
        "whole_mass": float(env.model.body_mass.sum()),
        "effort_weight": options.number("ctrl_cost_weight"),
        "effort_of_control": True,
        "contact": (env.data.cfrc_ext, options.number("contact_cost_weight"), every, costs),
    }


def _humanoid_standup(env: Any, options: _Options) -> Description:
    every, costs = (-_INF, _INF), options.ends("impact_cost_range")
    return {
        "observation": _whole_body(env, options),
        "limits": [],
        "falls": False,
        "reward": "stand",
        "place": env.data.qpos[2:3],
        "seconds": env.model.opt.timestep,
        "effort_weight": options.number("ctrl_cost_weight"),
        "effort_of_control": True,
        "contact": (env.data.cfrc_ext, options.number("impact_cost_weight"), every, costs),
    }


def _inverted_pendulum(env: Any, options: _Options) -> Description:
    return {
        "observation": [_part(env.data.qpos), _part(env.data.qvel)],
        "limits": [*_finite(env), (env.data.qpos[1:2], -0.2, 0.2, True)],
        "falls": True,
        "reward": "health",
    }


def _inverted_double_pendulum(env: Any, options: _Options) -> Description:
    data, ends = env.data, (-10.0, 10.0)
    tip = data.site_xpos[0]
    return {
        "observation": [
            _part(data.qpos[:1]),
            _part(data.qpos[1:], by=np.sin),
            _part(data.qpos[1:], by=np.cos),
            _part(data.qvel, ends=ends),
            _part(data.qfrc_constraint[:1], ends=ends),
        ],
        "limits": [(tip[2:], 1.0, _INF, False)],
        "falls": True,
        "reward": "balance",
        "place": tip,
        "speeds": data.qvel[1:3],
        "health_reward": options.number("healthy_reward"),
        "power": of_libm("pow"),
    }


def _reach(options: _Options, *distances: tuple[Array, Array, str]) -> Description:
    return {
        "limits": [],
        "falls": False,
        "reward": "reach",
        "effort_weight": options.single("reward_control_weight"),
        "distances": [(start, end, options.number(weight)) for start, end, weight in distances],
    }


def _reacher(env: Any, options: _Options) -> Description:
    data = env.data
    fingertip, target = (data.body(name).xpos for name in ("fingertip", "target"))
    return {
        **_reach(options, (fingertip, target, "reward_dist_weight")),
        "observation": [
            _part(data.qpos[:2], by=np.cos),
            _part(data.qpos[:2], by=np.sin),
            _part(data.qpos[2:]),
            _part(data.qvel[:2]),
            _part(fingertip[:2], minus=target[:2]),
        ],
    }


def _pusher(env: Any, options: _Options) -> Description:
    data = env.data
    tips, thing, goal = (data.body(name).xpos for name in ("tips_arm", "object", "goal"))
    return {
        **_reach(options, (thing, goal, "reward_dist_weight"), (thing, tips, "reward_near_weight")),
        "observation": [_part(each) for each in (data.qpos[:7], data.qvel[:7], tips, thing, goal)],
    }


_GYMNASIUM = "gymnasium.envs.mujoco"
#: By class; a subclass is another.
_KINDS: dict[str, Callable[[Any, _Options], Description]] = {
    f"{_GYMNASIUM}.ant_v5.AntEnv": _ant,
    f"{_GYMNASIUM}.half_cheetah_v5.HalfCheetahEnv": _half_cheetah,
    f"{_GYMNASIUM}.hopper_v5.HopperEnv": _hopper,
    f"{_GYMNASIUM}.humanoid_v5.HumanoidEnv": _humanoid,
    f"{_GYMNASIUM}.humanoidstandup_v5.HumanoidStandupEnv": _humanoid_standup,
    f"{_GYMNASIUM}.inverted_double_pendulum_v5.InvertedDoublePendulumEnv": _inverted_double_pendulum,
    f"{_GYMNASIUM}.inverted_pendulum_v5.InvertedPendulumEnv": _inverted_pendulum,
    f"{_GYMNASIUM}.pusher_v5.PusherEnv": _pusher,
    f"{_GYMNASIUM}.reacher_v5.ReacherEnv": _reacher,
    f"{_GYMNASIUM}.swimmer_v5.SwimmerEnv": _swimmer,
    f"{_GYMNASIUM}.walker2d_v5.Walker2dEnv": _walker,
}
