"""The configuration of a run: one tree of frozen dataclasses, checked once when it is made.

Owns every key, its default, its type and its allowed values; ``conf/*.yaml`` holds the same defaults for the command
line. Must not know Hydra, OmegaConf or how any value is used. Invariant: a config object that exists is valid, so code
below trusts it. Every refusal is a `ConfigError` of one line: key, got, expected.
"""

import dataclasses
import difflib
import json
import math
import time
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Union

from pyes.errors import ConfigError


@dataclass(frozen=True)
class Range:
    """Allowed range of a number, or of each number of a tuple; an open end excludes its bound."""

    minimum: float | None = None
    maximum: float | None = None
    open_minimum: bool = False
    open_maximum: bool = False

    def __contains__(self, value: float) -> bool:
        """Whether a number lies in the range."""
        if self.minimum is not None and (value < self.minimum or (self.open_minimum and value == self.minimum)):
            return False
        return self.maximum is None or not (value > self.maximum or (self.open_maximum and value == self.maximum))

    def __str__(self) -> str:
        """Return the range as it stands in a message, for example ``> 0 and <= 1``."""
        ends = []
        if self.minimum is not None:
            ends.append(f"{'>' if self.open_minimum else '>='} {self.minimum}")
        if self.maximum is not None:
            ends.append(f"{'<' if self.open_maximum else '<='} {self.maximum}")
        return " and ".join(ends)


Positive = Range(minimum=0, open_minimum=True)
NotNegative = Range(minimum=0)
AtLeastOne = Range(minimum=1)
Share = Range(minimum=0, maximum=1, open_minimum=True)
Seed = Range(minimum=0, maximum=2**64 - 1)


@dataclass(frozen=True)
class Section:
    """Base of all sections: checks and converts its fields, so that a section that exists is valid."""

    PATH: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Check every field against its annotation, then what only holds between fields."""
        for name, hint in _hints(type(self)).items():
            object.__setattr__(self, name, _parse(hint, getattr(self, name), _join(self.PATH, name)))
        self.check()

    def check(self) -> None:
        """Refuse combinations of values that are each allowed alone."""


@dataclass(frozen=True)
class EpisodeLimitConfig(Section):
    """A limit on training episodes that grows as members come to reach it."""

    PATH = "algorithm.episode_limit"

    initial: Annotated[int, AtLeastOne] | None = None  # timesteps; None: no limit but the task's own
    threshold: Annotated[float, Share] = 0.2  # the limit grows when this share of the members reached it ...
    growth: Annotated[float, Range(minimum=1, open_minimum=True)] = 1.5  # ... by this factor


@dataclass(frozen=True)
class AlgorithmConfig(Section):
    """How a generation is sampled and how theta moves."""

    PATH = "algorithm"

    name: Literal["openai_es"] = "openai_es"
    population_size: Annotated[int, Range(minimum=2)] = 40  # members evaluated, mirrored ones counted
    sigma: Annotated[float, Positive] = 0.3
    sigma_decay: Annotated[float, Share] = 1.0  # factor a generation
    sigma_min: Annotated[float, NotNegative] = 0.0
    learning_rate: Annotated[float, Positive] = 0.1
    learning_rate_decay: Annotated[float, Share] = 1.0  # factor a generation
    learning_rate_min: Annotated[float, NotNegative] = 0.0
    weight_decay: Annotated[float, NotNegative] = 0.0
    weight_decay_mode: Literal["decoupled", "classic"] = "decoupled"
    mirrored: bool = True  # members 2i and 2i + 1 are theta + sigma * eps and theta - sigma * eps
    shaping: Literal["centered_ranks", "z_score", "none"] = "centered_ranks"
    episode_limit: EpisodeLimitConfig = field(default_factory=EpisodeLimitConfig)

    def check(self) -> None:
        """Refuse an odd mirrored population, and floors above where the schedules start."""
        if self.mirrored and self.population_size % 2:
            raise refusal(
                "algorithm.population_size",
                self.population_size,
                "an even number with algorithm.mirrored=true (or algorithm.mirrored=false)",
            )
        if self.sigma_min > self.sigma:
            raise refusal("algorithm.sigma_min", self.sigma_min, f"at most algorithm.sigma, which is {self.sigma}")
        if self.learning_rate_min > self.learning_rate:
            expected = f"at most algorithm.learning_rate, which is {self.learning_rate}"
            raise refusal("algorithm.learning_rate_min", self.learning_rate_min, expected)


@dataclass(frozen=True)
class OptimizerConfig(Section):
    """The rule that turns a gradient into a step; each rule reads its own keys."""

    PATH = "optimizer"

    name: Literal["adam", "sgd", "clipup"] = "adam"
    beta1: Annotated[float, Range(0, 1, open_maximum=True)] = 0.9  # adam
    beta2: Annotated[float, Range(0, 1, open_maximum=True)] = 0.999  # adam
    epsilon: Annotated[float, Positive] = 1e-8  # adam
    momentum: Annotated[float, Range(0, 1, open_maximum=True)] = 0.9  # sgd, clipup
    max_speed: Annotated[float, Positive] = 0.3  # clipup: longest step


@dataclass(frozen=True)
class TaskConfig(Section):
    """The environment, and what an episode of it counts for."""

    PATH = "task"

    name: Literal["gymnasium", "gym", "python", "function", "envpool"] = "gymnasium"
    env_id: str = "LunarLanderContinuous-v3"  # gymnasium, gym, envpool
    factory: str | None = None  # PACKAGE:FUNCTION; python: FUNCTION(**env_kwargs); function: FUNCTION(theta, ...)
    dim: Annotated[int, AtLeastOne] | None = None  # function: length of theta
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    episodes: Annotated[int, AtLeastOne] = 1  # a member and generation; their mean is the member's return
    max_timesteps: Annotated[int, AtLeastOne] | None = None  # None: the environment's own limit
    common_random_numbers: Literal["none", "pair", "generation"] = "generation"  # who shares environment seeds
    normalize_observations: bool = False
    observation_clip: Annotated[float, Positive] = 5.0  # standard deviations; only when normalized
    statistics_share: Annotated[float, Share] = 1.0  # share of the members whose observations feed the statistics
    reward_offset_per_step: float = 0.0  # added in training only; evaluation reports the task's own returns
    frame_skip: Annotated[int, AtLeastOne] | Literal["auto"] = "auto"  # steps of an action; auto: Atari 4, else 1
    action: Literal["auto", "argmax", "identity", "clip", "tanh", "bins"] = "auto"
    bins: Annotated[int, NotNegative] = 0  # values an action component can take, with action=bins
    action_levels: Annotated[int, NotNegative] = 0  # evenly spread values that the task rounds components to; 0: any
    action_noise: Annotated[float, NotNegative] = 0.0  # standard deviation, training only
    hide_observations: tuple[Annotated[int, NotNegative], ...] = ()  # indices that the policy does not see ...
    hide_by: Literal["remove", "zero"] = "remove"  # ... because they are left out, or always zero
    remake: bool = False  # rebuild the environment for every episode: for those whose reset is no clean slate

    def check(self) -> None:
        """Refuse environments without a name, a single action level, and bins that do not go with the action."""
        self._check_environment()
        self._check_function()
        self._check_foreign()
        if self.action == "bins" and self.bins < 2:
            raise refusal("task.bins", self.bins, "an integer >= 2 with task.action=bins")
        if not _is_json(self.env_kwargs):
            raise refusal("task.env_kwargs", self.env_kwargs, _JSON_MAPPING)
        if self.action_levels == 1:
            raise refusal("task.action_levels", 1, "0 (any value) or an integer >= 2")
        if self.action != "bins" and self.bins:
            raise refusal("task.bins", self.bins, f"0 with task.action={self.action} (or task.action=bins)")

    @property
    def title(self) -> str:
        """What the task is called: the environment's id, or the function's name."""
        return self.factory or self.env_id

    def _check_environment(self) -> None:
        """Refuse an environment that is named in no way, or in two; with a factory, the id is empty."""
        if self.name in ("python", "function"):
            if not self.factory:
                raise refusal("task.factory", self.factory, "PACKAGE:FUNCTION, for example 'my_tasks:make'")
            if self.env_id not in ("", TaskConfig.env_id):
                raise refusal("task.env_id", self.env_id, f"nothing with task.name={self.name}")
            object.__setattr__(self, "env_id", "")
            return
        if self.factory is not None:
            raise refusal("task.factory", self.factory, "nothing without task.name=python or function")
        if not self.env_id:
            raise refusal("task.env_id", self.env_id, "the id of a Gymnasium environment, for example 'CartPole-v1'")

    def _check_function(self) -> None:
        """Refuse a function without the length of its argument, and that length without a function."""
        if self.name != "function":
            if self.dim is not None:
                raise refusal("task.dim", self.dim, "nothing without task.name=function")
            return
        if self.dim is None:
            raise refusal("task.dim", None, "an integer >= 1: how many numbers the function takes")

    def _check_foreign(self) -> None:
        """Refuse keys that have no meaning for this kind of task."""
        for key in _FOREIGN.get(self.name, ()):
            value, default = getattr(self, key), getattr(TaskConfig, key)
            if value != default:
                raise refusal(f"task.{key}", _plain(value), f"{_literal(default)} with task.name={self.name}")


#: Keys of a task that some kinds do not have: a function has no policy, EnvPool's environments are its own affair.
_FOREIGN = {
    "function": (
        "normalize_observations", "frame_skip", "action", "action_levels", "action_noise", "hide_observations",
    ),
    "envpool": ("frame_skip", "action_levels", "remake"),
}  # fmt: skip


@dataclass(frozen=True)
class NetworkConfig(Section):
    """The policy network."""

    PATH = "network"

    name: Literal["linear", "mlp", "rnn", "gru", "lstm", "dqn", "torch"] = "linear"
    hidden: tuple[Annotated[int, AtLeastOne], ...] = ()  # mlp, rnn, gru, lstm, dqn: units of each hidden layer
    activation: Literal["identity", "tanh", "relu", "sigmoid", "elu", "leaky_relu", "silu", "gelu", "softsign"] = "tanh"
    output_activation: Literal["identity", "tanh"] = "identity"  # before the action is chosen
    bias: bool = True
    double_bias: bool = False  # rnn, gru, lstm: torch's two biases a gate instead of one
    init: Literal["torch", "zero"] = "torch"  # theta at the start: torch's own initialisation, or all zeros
    module: str | None = None  # torch: PACKAGE:CLASS, made as CLASS(observation_size, outputs, **module_kwargs)
    module_kwargs: dict[str, Any] = field(default_factory=dict)
    channels: tuple[Annotated[int, AtLeastOne], ...] = ()  # dqn: filters of each convolution ...
    kernels: tuple[Annotated[int, AtLeastOne], ...] = ()  # ... height and width of each ...
    strides: tuple[Annotated[int, AtLeastOne], ...] = ()  # ... and pixels that it moves by
    divisor: Annotated[int, AtLeastOne] = 1  # dqn: of the observation
    virtual_batch_norm: bool = False  # dqn: normalise all hidden layers by their statistics over a reference batch

    def check(self) -> None:
        """Refuse layers, activations, biases and modules that do not go with the name."""
        self._check_module()
        self._check_convolutions()
        if self.name in ("linear", "torch") and self.hidden:
            expected = f"[] with network.name={self.name} (or network.name=mlp)"
            raise refusal("network.hidden", list(self.hidden), expected)
        if self.name not in ("linear", "torch") and not self.hidden:
            raise refusal("network.hidden", [], f"at least one layer with network.name={self.name}, for example [64]")
        if self.name == "rnn" and self.activation not in ("tanh", "relu"):
            raise refusal("network.activation", self.activation, "'tanh' or 'relu' with network.name=rnn")
        if self.double_bias and not (self.bias and self.name in ("rnn", "gru", "lstm")):
            expected = "false without network.bias=true and network.name=rnn, gru or lstm"
            raise refusal("network.double_bias", True, expected)

    def _check_convolutions(self) -> None:
        """Refuse convolutions that are not wholly described, and what belongs to them elsewhere."""
        counts = [len(each) for each in (self.channels, self.kernels, self.strides)]
        if self.name == "dqn" and not 0 < counts[0] == counts[1] == counts[2]:
            expected = "as many kernels and strides, and at least one, with network.name=dqn"
            raise refusal("network.channels", list(self.channels), expected)
        for key in ("channels", "kernels", "strides", "divisor", "virtual_batch_norm"):
            value, default = getattr(self, key), getattr(NetworkConfig, key)
            if self.name != "dqn" and value != default:
                raise refusal(f"network.{key}", _plain(value), f"{_plain(default)!r} without network.name=dqn")

    def _check_module(self) -> None:
        """Refuse a module without its name, and settings that a module decides by itself."""
        if self.name != "torch":
            for key, value in (("module", self.module), ("module_kwargs", self.module_kwargs)):
                if value:
                    raise refusal(f"network.{key}", value, "nothing without network.name=torch")
            return
        if not self.module:
            raise refusal("network.module", self.module, "PACKAGE:CLASS, for example 'my_networks:Convolution'")
        if not _is_json(self.module_kwargs):
            raise refusal("network.module_kwargs", self.module_kwargs, _JSON_MAPPING)
        if self.output_activation != "identity":
            raise refusal("network.output_activation", self.output_activation, "'identity' with network.name=torch")
        if not self.bias:
            raise refusal("network.bias", False, "true with network.name=torch: the module decides")


@dataclass(frozen=True)
class NoiseConfig(Section):
    """The shared table of normal numbers."""

    PATH = "noise"

    entries: Annotated[int, AtLeastOne] | Literal["auto"] = "auto"  # auto: fits the machine's or container's memory
    dtype: Literal["float32", "bfloat16", "int8"] = "float32"
    seed: Annotated[int, Seed] = 0


@dataclass(frozen=True)
class ClusterConfig(Section):
    """Who evaluates the members; the result of a run does not depend on it."""

    PATH = "cluster"

    name: Literal["local", "inline"] = "local"
    workers: Annotated[int, AtLeastOne] | Literal["auto"] = "auto"  # auto: one a core this process may use
    start_method: Literal["auto", "fork", "spawn"] = "auto"
    episode_time_limit: Annotated[float, Positive] = 300.0  # seconds; then its worker is replaced
    attempts: Annotated[int, AtLeastOne] = 3  # a member that cost this many workers is recorded as failed
    vector: Annotated[int, AtLeastOne] = 64  # members that a worker evaluates at once, with task.name=envpool


@dataclass(frozen=True)
class LoggerConfig(Section):
    """Where metrics go beside metrics.csv."""

    PATH = "logger"

    tensorboard: bool = False


@dataclass(frozen=True)
class EvaluationConfig(Section):
    """Evaluation of the unperturbed policy, on seeds of its own."""

    PATH = "evaluation"

    every: Annotated[int, NotNegative] = 5  # generations; 0: never
    episodes: Annotated[int, AtLeastOne] = 50


@dataclass(frozen=True)
class SnapshotConfig(Section):
    """How often the whole state is written to disk."""

    PATH = "snapshot"

    every: Annotated[int, NotNegative] = 10  # generations; 0: only at the end


@dataclass(frozen=True)
class TrainConfig(Section):
    """A whole run. Of the budgets (the first four after seed), the first one reached ends it."""

    seed: Annotated[int, Seed] = 0
    generations: Annotated[int, AtLeastOne] | None = 200
    timesteps: Annotated[int, AtLeastOne] | None = None
    time_limit: Annotated[float, Positive] | None = None  # seconds
    target_return: float | None = None  # mean return of an evaluation
    run_dir: str = field(default_factory=lambda: time.strftime("runs/%Y-%m-%d/%H-%M-%S"))
    resume: str | None = None
    force: bool = False  # with resume: go another way from here on when settings that decide theta have changed
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    snapshot: SnapshotConfig = field(default_factory=SnapshotConfig)

    def check(self) -> None:
        """Refuse what does not go together across sections."""
        if self.task.common_random_numbers == "pair" and not self.algorithm.mirrored:
            expected = "'none' or 'generation' with algorithm.mirrored=false"
            raise refusal("task.common_random_numbers", "pair", expected)
        if self.force and self.resume is None:
            raise refusal("force", True, "false without resume=RUN")
        if self.task.name == "function":
            # One layer without bias, which observes a 1, gives theta itself.
            for key, value in (("name", "linear"), ("bias", False), ("output_activation", "identity")):
                got = getattr(self.network, key)
                if got != value:
                    raise refusal(f"network.{key}", got, f"{_literal(value)} with task.name=function")


#: Keys, and sections, that do not decide theta: they may change whenever a run goes on.
FREE = (
    "generations", "timesteps", "time_limit", "target_return", "run_dir", "resume", "force", "cluster", "logger",
    "evaluation", "snapshot",
)  # fmt: skip


def from_mapping(mapping: Mapping[str, Any]) -> TrainConfig:
    """Check a nested mapping and make a `TrainConfig` of it; keys left out take their defaults.

    Raises
    ------
    ConfigError    an unknown key (the allowed ones are listed), a wrong type or an impossible value
    """
    return typing.cast(TrainConfig, _parse(TrainConfig, mapping, ""))


def to_mapping(config: Section) -> dict[str, Any]:
    """Return a config as nested dicts and lists of plain JSON values; `from_mapping` is the inverse."""
    return typing.cast(dict[str, Any], _plain(dataclasses.asdict(config)))


def deciding(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that decide theta, as `to_mapping` has them."""
    return {key: value for key, value in to_mapping(config).items() if key not in FREE}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which two nested mappings differ, dotted and sorted, each with its old and its new value."""
    old, new = flat(before), flat(after)
    keys = sorted(old.keys() | new.keys())
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, with dotted keys."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {prefix + key: value}
    return result


def refusal(key: str, got: object, expected: str) -> ConfigError:
    """Return the one-line error that names a key, what was got and what was expected."""
    return ConfigError(f"{key or 'configuration'}: got {got!r}, expected {expected}")


def unknown_key(path: str, key: str, allowed: Iterable[str], what: str = "key") -> ConfigError:
    """Return the one-line error for a key (or other name) that does not exist, with the allowed ones listed."""
    names = sorted(allowed)
    close = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean {_join(path, close[0])!r}? " if close else ""
    return ConfigError(f"unknown {what} {_join(path, key)!r}: {hint}allowed: {', '.join(names)}")


def _hints(section: type[Section]) -> dict[str, Any]:
    hints = typing.get_type_hints(section, include_extras=True)
    return {each.name: hints[each.name] for each in dataclasses.fields(section)}


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _parse(hint: Any, value: Any, path: str) -> Any:
    """Return the value as the annotation wants it, or raise a ConfigError that names its path."""
    if isinstance(hint, type) and issubclass(hint, Section):
        return _parse_section(hint, value, path)
    parsed = _match(hint, value)
    if parsed is _MISMATCH:
        raise refusal(path, value, _describe(hint))
    return parsed


def _parse_section(section: type[Section], value: Any, path: str) -> Section:
    if isinstance(value, section):
        return value
    allowed = _hints(section)
    if not isinstance(value, Mapping):
        raise refusal(path, value, f"a mapping with keys among: {', '.join(sorted(allowed))}")
    for key in value:
        if key not in allowed:
            raise unknown_key(path, str(key), allowed)
    return section(**value)


_MISMATCH = object()


def _match(hint: Any, value: Any) -> Any:
    """Return the value converted to the annotated type, or _MISMATCH."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        parsed = _match(arguments[0], value)
        return parsed if parsed is not _MISMATCH and parsed in arguments[1] else _MISMATCH
    if origin in (Union, types.UnionType):
        matches = (_match(option, value) for option in arguments)
        return next((each for each in matches if each is not _MISMATCH), _MISMATCH)
    if origin is Literal:
        return value if isinstance(value, str) and value in arguments else _MISMATCH
    if origin is tuple:
        return _match_tuple(arguments[0], value)
    if origin is dict:
        return dict(value) if isinstance(value, Mapping) and all(isinstance(k, str) for k in value) else _MISMATCH
    return _match_scalar(hint, value)


def _match_tuple(hint: Any, value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return _MISMATCH
    items = tuple(_match(hint, item) for item in value)
    return _MISMATCH if any(item is _MISMATCH for item in items) else items


def _match_scalar(hint: Any, value: Any) -> Any:
    if hint is types.NoneType:
        return None if value is None else _MISMATCH
    if hint in (bool, str):
        return value if isinstance(value, hint) else _MISMATCH
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) == math.inf:
        return _MISMATCH
    if hint is float:
        return float(value)
    return int(value) if value == int(value) else _MISMATCH  # 1e6 is a fine number of timesteps


def _describe(hint: Any) -> str:
    """Return what an annotation allows, in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return f"{_describe(arguments[0])} {arguments[1]}"
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(option) for option in arguments)
    if origin is Literal:
        return repr(arguments[0]) if len(arguments) == 1 else f"one of {', '.join(map(repr, arguments))}"
    if origin is tuple:
        return f"a list, each item {_describe(arguments[0])}"
    if origin is dict:
        return "a mapping with string keys"
    return {bool: "true or false", int: "an integer", float: "a finite number", str: "a string"}.get(hint, "null")


def _literal(value: Any) -> str:
    """Return a value as a message has it: 'linear', false, 1, []."""
    return repr(value) if isinstance(value, str) else json.dumps(value)


_JSON_MAPPING = "a mapping of what JSON has: strings, numbers, true, false, null, and lists and mappings of those"


def _is_json(value: Any) -> bool:
    """Whether a value comes back as it is from JSON, in which a run's configuration is kept."""
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == _plain(value))
    except (TypeError, ValueError):
        return False


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
