"""Environments written in Python and compiled by Numba, behind the struct of ``pyes_environment.h``.

Owns the form of such a class, its compilation, and what is said of a class that cannot be compiled. Must not know
tasks: a struct of this module is a struct as any other. Invariant: what is loaded from Numba's cache was compiled from
this very code, that of the functions it calls, and the constants it reads.
"""

import contextlib
import ctypes
import difflib
import dis
import enum
import functools
import hashlib
import inspect
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.errors import ConfigError, missing
from pyes.system.text import literal, short
from pyes.system.user_code import let_through

#: Attributes of a class, beside the fields of its state, which are annotated; with what each is when it is left out.
_SETTINGS: dict[str, Any] = {
    "observation_size": None, "observation_type": np.float32, "observation_low": None, "observation_high": None,
    "choices": 0, "action_size": 0, "action_low": None, "action_high": None,
    "reward_low": 0.0, "reward_high": 0.0, "time_limit": 0,
}  # fmt: skip
_ARGUMENTS = {"reset": ("self", "observation"), "step": ("self", "action", "observation"), "render": ("self",)}
_OWN_FIELDS = ("random", "failed")  # of the state; the second one: a function has raised an exception
_LIBRARIES = sys.stdlib_module_names | {"builtins", "numpy", "numba"}
_STANDARD = sysconfig.get_path("stdlib")
_ABI = 1
_FAILED = 4

#: A struct pyes_random.
RANDOM = np.dtype([("key", "u8"), ("block", "u8"), ("words", "u4", (4,)), ("left", "u4")], align=True)

#: What C calls. `digest` makes another entry in Numba's cache of whatever else the code depends on.
_SOURCE = """
def compiled(digest):
    def {name}_reset(state, seed, observation, user):
        digest
        now = carray(state, 1)[0]
        begin(now.random, seed)
        try:
            run_reset(now, carray(observation, {size}))
        except Exception:
            now.failed = 1

    def {name}_step(state, action, observation, reward, user):
        digest
        now = carray(state, 1)[0]
        if now.failed:
            return {failed}
        try:
            reward[0], flags = outcome(run_step(now, {action}, carray(observation, {size})))
        except Exception:
            now.failed = 1
            return {failed}
        return flags

    return {name}_reset, {name}_step
"""


class Struct(ctypes.Structure):
    """A struct pyes_environment; it keeps alive what it points to."""

    _fields_ = [
        ("abi", ctypes.c_uint32), ("size", ctypes.c_uint32), ("name", ctypes.c_char_p), ("reset", ctypes.c_void_p),
        ("step", ctypes.c_void_p), ("user", ctypes.c_void_p), ("state_bytes", ctypes.c_uint64),
        ("observation_type", ctypes.c_uint32), ("observation_size", ctypes.c_uint32), ("choices", ctypes.c_uint32),
        ("action_size", ctypes.c_uint32), ("observation_low", ctypes.c_void_p), ("observation_high", ctypes.c_void_p),
        ("action_low", ctypes.c_void_p), ("action_high", ctypes.c_void_p), ("reward_low", ctypes.c_double),
        ("reward_high", ctypes.c_double), ("time_limit", ctypes.c_uint64),
    ]  # fmt: skip
    kept: list[Any]


class Environment:
    """A class that `environment` has decorated. Numba compiles it when it is first used.

    Attributes
    ----------
    draw : callable or None
        Makes a picture of a state; the class's ``render``.
    """

    def __init__(self, definition: type) -> None:
        self._definition = definition
        self.__module__ = definition.__module__  # whose code it is, for a worker that allows some packages only
        self._where = _checked(definition)
        self.draw: Callable[[Any], Any] | None = vars(definition).get("render")

    @functools.cached_property
    def state(self) -> np.dtype[Any]:
        """Type of the state: the fields of the class, and two of our own."""
        return _state(self._definition, self._where)

    @functools.cached_property
    def struct(self) -> Struct:
        """The struct, with compiled functions.

        Raises
        ------
        ConfigError
            Numba is not installed, or the class cannot be compiled; the message names the line.
        """
        try:
            import numba  # noqa: F401
        except ImportError as error:
            what = f"{self._where}: an environment in Python that is compiled"
            raise missing(what, "numba", "numba", error) from error
        name = self._definition.__name__
        settings = {key: getattr(self._definition, key, value) for key, value in _SETTINGS.items()}
        made = Struct(abi=_ABI, size=ctypes.sizeof(Struct), name=name.encode(), state_bytes=self.state.itemsize)
        arrays = [*_describe(made, settings, self._where)]
        functions = {key: vars(self._definition)[key] for key in ("reset", "step")}
        for function in functions.values():
            _check_fields(name, function, (self.state.names or ())[:-1])
        callbacks = _compile(made, self.state, functions)
        made.reset, made.step = (each.address for each in callbacks)
        made.kept = [*arrays, *callbacks]
        return made

    def explain(self, seed: int, actions: Sequence[Any]) -> BaseException | None:
        """Run an episode in Python alone, without Numba; return what it raises, if anything."""
        functions, struct = vars(self._definition), self.struct
        now = self.view(np.zeros(self.state.itemsize, np.uint8))
        now.random.key = seed
        observation = np.zeros(struct.observation_size, float if struct.observation_type else np.float32)
        try:
            functions["reset"](now, observation)
            for action in actions:
                functions["step"](now, int(action) if struct.choices else np.asarray(action, np.float32), observation)
        except Exception as error:
            return error
        return None

    def view(self, state: NDArray[np.uint8]) -> Any:
        """Return the bytes of a state as the record that the functions of the class call ``self``."""
        return state.view(self.state).view(np.recarray)[0]


def environment(definition: type) -> Environment:
    """Make an environment of a class, for Numba to compile; a decorator, see docs/howto/native_environment.md.

    The class's annotations are the fields of the state, its attributes are those of ``pyes_environment.h``, and its
    functions are ``reset(self, observation)``, ``step(self, action, observation)``, which returns the reward and
    whether the episode is over, and if wanted ``render(self)``, which is not compiled.

    Raises
    ------
    ConfigError
        The class has other members.
    """
    return Environment(definition)


def _error(name: str, text: str, code: types.CodeType, line: int | None = None) -> ConfigError:
    """Return the error of a class at a line of one of its functions."""
    return ConfigError(f"{short(code.co_filename)}:{line or code.co_firstlineno} in {name}: {text}")


def _checked(definition: type) -> str:
    """Refuse what is missing and what nothing would read; return the class's name and file, for messages."""
    if not isinstance(definition, type):
        raise ConfigError(f"native.environment: got {type(definition).__name__}, expected a class with reset and step")
    files = [short(each.__code__.co_filename) for each in vars(definition).values() if inspect.isfunction(each)]
    where = f"{definition.__name__} ({files[0]})" if files else definition.__name__
    given = {name: value for name, value in vars(definition).items() if not name.startswith("_")}
    for name in given.keys() - _SETTINGS.keys() - _ARGUMENTS.keys():
        close = difflib.get_close_matches(name, [*_SETTINGS, *_ARGUMENTS], n=1)
        hint = f"did you mean {close[0]!r}?" if close else "constants and other functions belong outside of the class"
        if name in inspect.get_annotations(definition):
            hint = "a field has no default: set it in reset"
        raise ConfigError(f"{where}: unknown {name!r}; {hint} (allowed: {', '.join((*_SETTINGS, *_ARGUMENTS))})")
    for name, expected in _ARGUMENTS.items():
        function = given.get(name)
        if function is None and name == "render":
            continue
        if not inspect.isfunction(function):
            raise ConfigError(f"{where}: it has no function {name}({', '.join(expected)})")
        if len(inspect.signature(function).parameters) != len(expected):
            text = f"got {name}({', '.join(inspect.signature(function).parameters)}), expected ({', '.join(expected)})"
            raise _error(definition.__name__, text, function.__code__)
    return where


def _state(definition: type, where: str) -> np.dtype[Any]:
    """Return the type of the state."""
    try:
        annotations = inspect.get_annotations(definition, eval_str=True)
    except Exception as error:
        raise ConfigError(f"{where}: its annotations cannot be read ({error}), expected types such as float") from error
    fields: list[tuple[str, Any]] = []
    for name, annotation in annotations.items():
        if name in (*_OWN_FIELDS, *_SETTINGS) or hasattr(np.record, name):  # Python would read that of the record
            raise ConfigError(f"{where}: a field cannot have the name {name!r}; choose another")
        try:
            dtype = np.dtype(annotation)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{where}: the field {name} has the type {annotation!r}, {_FIELD} ({error})") from error
        if dtype.base.kind not in "biuf" or dtype.base == np.dtype(np.longdouble) != np.dtype(float):
            raise ConfigError(f"{where}: the field {name} has the type {annotation!r}, {_FIELD}")
        fields.append((name, dtype))
    own = zip(_OWN_FIELDS, (RANDOM, np.dtype(np.uint8)), strict=True)
    try:
        return np.dtype([*fields, *own], align=True)
    except ValueError as error:
        raise ConfigError(f"{where}: its state is too large: {error}") from error


_FIELD = "expected float, int, bool, a NumPy type of these, or (type, shape) for an array: places: (float, 8)"


def _describe(made: Struct, settings: dict[str, Any], where: str) -> Iterator[NDArray[Any]]:
    """Fill in sizes, bounds and limits; yield the arrays that the struct points to."""
    for name in ("observation_size", "choices", "action_size", "time_limit"):
        value = settings[name]
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 2**31:
            raise ConfigError(f"{where}: {name}: got {literal(value)}, expected an integer >= 0 and < 2**31")
        setattr(made, name, value)
    if bool(made.choices) == bool(made.action_size):
        expected = "either choices (discrete actions) or action_size (numbers)"
        raise ConfigError(
            f"{where}: got choices={made.choices} and action_size={made.action_size}, expected {expected}"
        )
    if settings["observation_type"] not in (float, np.float32, np.float64):
        raise ConfigError(
            f"{where}: observation_type: got {settings['observation_type']!r}, expected np.float32 or float"
        )
    made.observation_type = int(settings["observation_type"] is not np.float32)
    for name in ("reward_low", "reward_high"):
        if not isinstance(settings[name], int | float | np.integer | np.floating):
            raise ConfigError(f"{where}: {name}: got {literal(settings[name])}, expected a number")
        setattr(made, name, settings[name])
    for kind, type_, size in (("observation", float, made.observation_size), ("action", np.float32, made.action_size)):
        for end in ("low", "high"):
            bound = settings[f"{kind}_{end}"]
            if bound is not None:
                try:
                    array = np.array(np.broadcast_to(np.asarray(bound, type_), (size,)))
                except (TypeError, ValueError):
                    expected = f"a number, or one for each of {size}"
                    raise ConfigError(f"{where}: {kind}_{end}: got {literal(bound)}, expected {expected}") from None
                setattr(made, f"{kind}_{end}", array.ctypes.data)
                yield array


def _check_fields(name: str, function: Any, fields: tuple[str, ...]) -> None:
    """Refuse ``self.other`` of a name that is no field: Numba's own message says neither why nor where."""
    code = function.__code__
    this = code.co_varnames[0]
    loaded: Any = ""  # by the instruction before
    for each in dis.get_instructions(code):
        is_attribute = each.opname in ("LOAD_ATTR", "STORE_ATTR", "LOAD_METHOD")
        if is_attribute and loaded == this and each.argval not in fields:
            text = (
                f"{this}.{each.argval} is no field of the state, which has {', '.join(fields)}; "
                "other functions belong outside of the class, with @numba.njit"
            )
            raise _error(name, text, code, each.positions.lineno if each.positions else None)
        loaded = (each.argval[-1] if isinstance(each.argval, tuple) else each.argval) if "FAST" in each.opname else ""


def _compile(made: Struct, state: np.dtype[Any], functions: dict[str, Any]) -> list[Any]:
    """Compile the functions, or take them from Numba's cache beside the user's file."""
    from pyes.numerics import compiled

    action = "int(action[0])" if made.choices else f"read_only(carray(action, {made.action_size}))"
    name = made.name.decode()
    source = _SOURCE.format(name=name, size=made.observation_size, action=action, failed=_FAILED)
    digest = _digest(source, state, *functions.values(), compiled.begin, compiled.outcome)
    path = functions["step"].__code__.co_filename
    jitted = [compiled.user(functions[each]) for each in ("reset", "step")]
    space: dict[str, Any] = {
        "__name__": functions["step"].__module__, "carray": compiled.carray,
        "read_only": compiled.read_only, "begin": compiled.begin,
        "run_reset": jitted[0], "run_step": jitted[1], "outcome": compiled.outcome,
    }  # fmt: skip
    exec(compile(source, path, "exec"), space)  # Numba keeps its cache beside the file that the code claims to be from
    wrappers = space["compiled"](digest)
    types_ = compiled.signatures(state, bool(made.observation_type))
    try:
        return [compiled.callback(*each, cache=digest != "") for each in zip(wrappers, types_, strict=True)]
    except BaseException as error:
        let_through(error)
        raise _explained(error, jitted, made, state) from error


def _explained(error: BaseException, jitted: list[Any], made: Struct, state: np.dtype[Any]) -> ConfigError:
    """Return why the functions cannot be compiled, from the first of them that cannot by itself."""
    from pyes.numerics import compiled

    name = made.name.decode()
    arguments = compiled.plain(state, bool(made.observation_type), bool(made.choices))
    for function, types_ in zip(jitted, arguments, strict=True):
        code = function.py_func.__code__
        try:
            function.compile(types_)
        except Exception as cause:
            place = getattr(cause, "loc", None)
            if place is None:
                return _error(name, _first_line(cause), code)
            return ConfigError(f"{short(str(place.filename))}:{place.line} in {name}: {_first_line(cause)}")
    (result,) = (each.signature.return_type for each in jitted[1].overloads.values())
    return _error(name, compiled.complaint(result) or _first_line(error), code)


def _first_line(error: BaseException) -> str:
    """Return what an error of Numba says, without where and during what."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    told = [line.removeprefix(">>> ") for line in lines if not line.startswith(("Failed in ", "During:", "- "))]
    more = 2 if told and told[0].endswith("signature:") else 1
    text = " ".join(told[:more]).removesuffix(".")
    return text if hasattr(error, "loc") else f"{type(error).__name__}: {text}"


class _Unknown(Exception):
    """Code uses something whose content is not known."""


def _digest(*parts: Any) -> str:
    """Return a hash of code and of all that it uses; empty if the content of something is not known."""
    found = hashlib.sha256()
    seen: set[int] = set()
    with contextlib.suppress(_Unknown):
        for part in parts:
            for text in _text(part, seen):
                found.update(text + b"\0")
        return found.hexdigest()
    return ""


def _text(part: Any, seen: set[int]) -> Iterator[bytes]:
    """Yield what a function, code or constant is made of, and the same of what its names stand for."""
    function = getattr(part, "py_func", part)  # of a function that Numba compiles
    if isinstance(function, types.FunctionType) and not _of_library(function):
        if id(function) not in seen:
            seen.add(id(function))
            yield repr(sorted(getattr(part, "targetoptions", {}).items())).encode()
            yield from _text(function.__code__, seen)
            for each in (function.__defaults__, *sorted((function.__kwdefaults__ or {}).items()), *_used(function)):
                yield from _text(each, seen)
    elif isinstance(function, types.CodeType):
        yield function.co_code
        yield repr(function.co_names).encode()
        for each in function.co_consts:
            yield from _text(each, seen)
    elif isinstance(function, enum.EnumType):
        members: Mapping[str, Any] = function.__members__
        yield repr({name: each.value for name, each in members.items()}).encode()
    elif isinstance(function, enum.Enum):
        yield repr(function).encode()
        yield from _text(type(function), seen)
    elif isinstance(function, np.ndarray):
        yield from (function.tobytes(), repr((function.dtype, function.shape)).encode())
    elif isinstance(function, tuple):
        yield from _text(type(function), seen)
        for each in function:
            yield from _text(each, seen)
    elif (
        isinstance(function, str | bytes | int | float | complex | slice | list | dict | np.generic | np.dtype | None)
        or function is ...
    ):
        yield repr(function).encode()
    elif isinstance(function, set | frozenset):
        yield repr(sorted(map(repr, function))).encode()
    elif _of_library(function):
        yield f"{function.__module__}.{function.__name__}".encode()
    elif type(function) is type:  # a NamedTuple or an exception
        yield f"{function.__qualname__} {getattr(function, '_fields', ())}".encode()
    elif type(function).__module__.startswith("numba.core.types."):
        yield repr(function).encode()
    else:
        raise _Unknown


def _of_library(value: Any) -> bool:
    """Whether a value is a function or class of Python, NumPy or Numba; not of a user's file with such a name."""
    root = str(getattr(value, "__module__", "")).partition(".")[0]
    if not hasattr(value, "__name__") or root not in _LIBRARIES:
        return False
    file = getattr(sys.modules.get(root), "__file__", None) or _STANDARD
    return root in ("numpy", "numba") or file.startswith(_STANDARD)


def _names(code: types.CodeType) -> list[str]:
    """Return the names that code reads, that of comprehensions and inner functions included."""
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return [*code.co_names, *(name for each in inner for name in _names(each))]


def _used(function: types.FunctionType) -> Iterator[Any]:
    """Yield the globals and closed-over values of a function, and attributes of modules among them, of any depth."""
    names = _names(function.__code__)
    found = [cell.cell_contents for cell in function.__closure__ or ()]
    found += [function.__globals__[name] for name in names if name in function.__globals__]
    modules: set[int] = set()
    while found:
        value = found.pop(0)
        if not isinstance(value, types.ModuleType):
            yield value
        elif id(value) not in modules:
            modules.add(id(value))
            found += [getattr(value, name) for name in names if hasattr(value, name)]
