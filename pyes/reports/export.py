"""Writes a policy in formats that other programs read.

    .safetensors    the arrays, and a .json file beside them; ``pyes.load`` reads them too
    .pt, .pth       state dict of the torch module ``pyes.networks.torch.PolicyModule``: the keys of a plain
                    ``nn.Sequential``, and ``observation_mean``, ``observation_inverse_std`` if observations are
                    normalised; normalised layers hold the statistics of the center over its reference batch
    .onnx           observations in, actions out: normalisation, network and choice of the action; a recurrent network
                    runs one timestep, with its states as inputs and outputs
    no suffix       a folder for a model hub: .safetensors, settings and a model card
    .c              C11 source without dependencies, and a .h file beside it

Owns the translation; knows nothing of tasks or runs. Invariant: an exported policy acts as the original without action
noise, up to rounding.

The ONNX graph is built by hand instead of by ``torch.onnx.export``, which needs torch and onnxscript, takes seconds,
and writes opset 18 (here 13) and a larger file (32 KB, here 21 KB, for two layers of 64) of equal accuracy (2e-7).
"""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyes.errors import ConfigError, missing
from pyes.networks import ActionPart, Activation, Instruction, NamedModule, Op, Policy, Program
from pyes.networks.action import rounded_inside
from pyes.reference import PolicyNetwork
from pyes.reports import c_source, hub
from pyes.reports.replay import load
from pyes.run.directory import RunDirectory
from pyes.system.files import write_file

if TYPE_CHECKING:
    import onnx

# Version 13 (2020) has all operators used here, and old runtimes can read it.
_OPSET = 13
_IR_VERSION = 7
_OF_A_RUN = ("policy", "best", "config")  # names of a run's files that a .safetensors and its .json would replace
#: The file beside one of this suffix, and what it has in it.
_BESIDE = {".safetensors": (".json", b'"theta_hash"'), ".c": (".h", b"made by pyes export")}
#: sqrt(2 / pi) and the cubic coefficient of GELU's tanh form (Hendrycks & Gimpel 2016).
_GELU_SCALE, _GELU_CUBIC = 0.7978845608028654, 0.044715


def export(
    run: str | Path,
    output: str | Path,
    generation: int | Literal["best"] | None = None,
    *,
    tell: Callable[[str], None] = lambda line: None,
) -> Path:
    """Write the center policy of a run in the format given by the suffix of ``output``; return the path.

    Without a suffix, or where it is a folder already: a folder for a model hub.

    Parameters
    ----------
    run, generation
        See `pyes.load`.
    output : str or Path
    tell : callable
        Gets a line for people: what the policy's task did with its actions.

    Raises
    ------
    ConfigError
        The suffix is unknown, a package is missing, there is no such center, or the file cannot be written.
    RunDirectoryError
        The policy is missing or damaged.
    """
    output = Path(output)
    if not output.suffix or output.is_dir():
        policy = load(run, generation)
        hub.write(policy, Path(run), output, chosen=generation == "best")
        _tell(policy, tell)
        return output
    if output.suffix not in _WRITERS:
        known = ", ".join(_WRITERS)
        raise ConfigError(f"cannot export to {output}: suffix {output.suffix!r}, expected none or one of {known}")
    if output.suffix == ".safetensors" and output.stem in _OF_A_RUN and RunDirectory(output.parent).journal.exists():
        raise ConfigError(f"{output} is the run's own, and would be replaced; export under another name")
    _check_ours(output)
    policy = load(run, generation)
    _WRITERS[output.suffix](policy, output)
    _tell(policy, tell)
    return output


def _tell(policy: Policy, tell: Callable[[str], None]) -> None:
    if told := policy.handling:
        tell(told)


def _check_ours(output: Path) -> None:
    """Refuse to replace the second file that a format has, if it is of something else."""
    suffix, mark = _BESIDE.get(output.suffix, ("", b""))
    beside = output.with_suffix(suffix)
    if suffix and beside.is_file() and mark not in beside.read_bytes():
        raise ConfigError(
            f"{beside} is not of an exported policy, and would be replaced; export under another name, or move it away"
        )


def state_dict(policy: Policy) -> dict[str, Any]:
    """Return the policy's torch tensors under the names that ``PolicyModule.load_state_dict`` takes.

    For a user's own module: under the module's names, with the observation statistics added.
    """
    try:
        from pyes.networks.torch.modules import policy_module
        from pyes.networks.torch.own import state_dict_of
    except ImportError as error:
        raise missing("export to .pt", "torch", "torch", error) from error
    statistics = (policy.observation_mean, policy.observation_inverse_std)
    if isinstance(policy.spec.program, NamedModule):
        return state_dict_of(policy.spec.program, policy.theta, *statistics)
    clip, batch = policy.spec.observation_clip, policy.reference_batch
    return dict(policy_module(policy.spec.program, policy.theta, *statistics, clip, batch).state_dict())


def onnx_model(policy: Policy) -> "onnx.ModelProto":
    """Return the policy as an ONNX model.

    Input ``observation`` float32 (batch, observation_size); output ``action``, int64 (batch,) for discrete actions
    and float32 (batch, *shape) for a Box of floats; for an action of several parts, one output ``action.NAME`` per part
    with its own type and shape (``action`` for a single part); output ``network_output`` float32 (batch, outputs),
    before the action is chosen. The metadata are the keys of policy.json and the observation statistics, as JSON. A
    recurrent network also has an input ``hidden_K`` and an output ``next_hidden_K`` for each recurrent layer K, from 0,
    and for an LSTM ``cell_K`` and ``next_cell_K``: float32 (batch, units), zeros when an episode begins.

    Raises
    ------
    ConfigError
        The package onnx is not installed, or the network is a torch module.
    """
    return _Graph(policy).model()


def _metadata(policy: Policy) -> dict[str, str]:
    """Return the description of a policy and its statistics, each value as JSON."""
    statistics = {
        "observation_mean": policy.observation_mean,
        "observation_inverse_std": policy.observation_inverse_std,
    }
    known = {key: array.tolist() for key, array in statistics.items() if array is not None}
    return {key: json.dumps(value) for key, value in {**policy.description(), **known}.items()}


def _write_torch(policy: Policy, output: Path) -> None:
    tensors = state_dict(policy)  # raises a readable error if torch is missing
    import torch

    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    write_file(output, buffer.getvalue())


def _write_onnx(policy: Policy, output: Path) -> None:
    write_file(output, onnx_model(policy).SerializeToString(deterministic=True))


_WRITERS: dict[str, Callable[[Policy, Path], None]] = {
    ".safetensors": Policy.save_as,
    ".pt": _write_torch,
    ".pth": _write_torch,
    ".onnx": _write_onnx,
    ".c": c_source.write,
}


class _Graph:
    """Builds an ONNX graph; every method that adds a node returns the name of its result."""

    def __init__(self, policy: Policy) -> None:
        try:
            import onnx.helper
            import onnx.numpy_helper
        except ImportError as error:
            raise missing("export to .onnx", "onnx", "onnx", error) from error
        if not isinstance(policy.spec.program, Program):
            raise ConfigError(
                f"{policy.spec.program.name} cannot be exported to .onnx, since torch runs it; export its state dict "
                "as .pt, and the module with torch.onnx.export"
            )
        self._onnx = onnx
        self._policy = policy
        self._program = policy.spec.program
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._states: list[tuple[str, int]] = []  # name and units; each is an input, and an output called next_NAME

    def model(self) -> "onnx.ModelProto":
        """Build the model of the whole policy."""
        policy, types = self._policy, self._onnx.TensorProto
        raw = self._network(self._normalized("observation"))
        self._node("Identity", raw, output="network_output")
        decoder = policy.spec.decoder
        actions = self._parts(raw) if decoder.parts else [self._whole(raw)]
        graph = self._onnx.helper.make_graph(
            self._nodes,
            "policy",
            [
                self._value("observation", types.FLOAT, [self._program.observation_size]),
                *(self._value(name, types.FLOAT, [units]) for name, units in self._states),
            ],
            [
                *actions,
                self._value("network_output", types.FLOAT, [decoder.outputs]),
                *(self._value(f"next_{name}", types.FLOAT, [units]) for name, units in self._states),
            ],
            self._constants,
        )
        opset = self._onnx.helper.make_opsetid("", _OPSET)
        model = self._onnx.helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="pyes")
        self._onnx.helper.set_model_props(model, _metadata(policy))
        self._onnx.checker.check_model(model)
        return model

    def _normalized(self, x: str) -> str:
        mean, inverse_std = self._policy.observation_mean, self._policy.observation_inverse_std
        if mean is None or inverse_std is None:
            return x
        x = self._node("Mul", self._node("Sub", x, self._constant(mean)), self._constant(inverse_std))
        clip = self._policy.spec.observation_clip
        return self._node("Clip", x, self._scalar(-clip), self._scalar(clip))

    def _network(self, x: str) -> str:
        theta, layers, image = self._policy.theta, 0, False
        folded = self._folded()
        for index, row in enumerate(self._program.instructions):
            if row.op == Op.SCALE:
                x = self._node("Div", x, self._scalar(row.divisor))
                continue
            if image != (row.op == Op.CONV):
                image = not image
                x = self._reshaped(x, row.image if image else [row.inputs])
            if Op(row.op).recurrent:
                x = self._recurrent(row, x, layers)
                layers += 1
                continue
            weight, bias = row.weight(theta), row.bias(theta)
            if row.normalized:
                scale, bias = folded[index]
                weight = weight * scale[:, None]
            x = self._convolved(x, row, weight, bias) if image else self._mapped(x, weight, bias)
            x = self._activated(x, Activation(row.activation))
        return self._reshaped(x, [self._program.outputs]) if image else x

    def _folded(self) -> dict[int, tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Return, for each normalised layer's index, the scale and bias that include its statistics."""
        policy = self._policy
        if not self._program.normalized:
            return {}
        return PolicyNetwork(self._program.array(), policy.theta, policy.reference_batch).folded

    def _convolved(
        self, x: str, row: Instruction, weight: NDArray[np.float32], bias: NDArray[np.float32] | None
    ) -> str:
        kernels = weight.reshape(-1, row.channels, row.kernel, row.kernel)
        inputs = [x, self._constant(kernels), *([] if bias is None else [self._constant(bias)])]
        return self._node("Conv", *inputs, strides=[row.stride] * 2)

    def _mapped(self, x: str, weight: NDArray[np.float32], bias: NDArray[np.float32] | None) -> str:
        x = self._node("MatMul", x, self._constant(weight.T))
        return x if bias is None else self._node("Add", x, self._constant(bias))

    def _recurrent(self, row: Instruction, x: str, layer: int) -> str:
        """Add one timestep of a recurrent layer; return its new hidden state."""
        theta, h = self._policy.theta, self._state("hidden", layer, row.outputs)
        ours = self._mapped(x, row.weight(theta), row.bias(theta))
        theirs = self._mapped(h, row.recurrent_weight(theta), row.recurrent_bias(theta))
        if row.op == Op.RNN:
            new = self._activated(self._node("Add", ours, theirs), Activation(row.activation))
        elif row.op == Op.GRU:
            new = self._gru(self._split(ours, 3), self._split(theirs, 3), h)
        else:
            c = self._state("cell", layer, row.outputs)
            new = self._lstm(self._split(self._node("Add", ours, theirs), 4), c)
        return self._node("Identity", new, output=f"next_{h}")

    def _gru(self, ours: Sequence[str], theirs: Sequence[str], h: str) -> str:
        """Add h' = (1 - z) n + z h, as n + z (h - n)."""
        r, z = (self._node("Sigmoid", self._node("Add", ours[k], theirs[k])) for k in (0, 1))
        n = self._node("Tanh", self._node("Add", ours[2], self._node("Mul", r, theirs[2])))
        return self._node("Add", n, self._node("Mul", z, self._node("Sub", h, n)))

    def _lstm(self, gates: Sequence[str], c: str) -> str:
        """Add c' = f c + i g and h' = o tanh(c')."""
        i, f, o = (self._node("Sigmoid", gates[k]) for k in (0, 1, 3))
        kept, new = self._node("Mul", f, c), self._node("Mul", i, self._node("Tanh", gates[2]))
        c = self._node("Add", kept, new, output=f"next_{c}")
        return self._node("Mul", o, self._node("Tanh", c))

    def _state(self, kind: str, layer: int, units: int) -> str:
        self._states.append((f"{kind}_{layer}", units))
        return self._states[-1][0]

    def _split(self, x: str, parts: int) -> list[str]:
        """Split the last axis into equal parts."""
        names = [f"split_{len(self._nodes)}_{part}" for part in range(parts)]
        self._nodes.append(self._onnx.helper.make_node("Split", [x], names, axis=-1))
        return names

    def _activated(self, x: str, activation: Activation) -> str:
        match activation:
            case Activation.IDENTITY:
                return x
            case Activation.ELU:
                return self._node("Elu", x, alpha=1.0)
            case Activation.LEAKY_RELU:
                return self._node("LeakyRelu", x, alpha=0.01)
            case Activation.SILU:
                return self._node("Mul", x, self._node("Sigmoid", x))
            case Activation.GELU:
                return self._gelu(x)
            case _:
                operator = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "softsign": "Softsign"}
                return self._node(operator[activation.name.lower()], x)

    def _gelu(self, x: str) -> str:
        """Add x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))."""
        cube = self._node("Mul", self._node("Mul", x, x), x)
        inner = self._node("Add", x, self._node("Mul", cube, self._scalar(_GELU_CUBIC)))
        tanh = self._node("Tanh", self._node("Mul", inner, self._scalar(_GELU_SCALE)))
        half = self._node("Mul", x, self._scalar(0.5))
        return self._node("Mul", half, self._node("Add", tanh, self._scalar(1.0)))

    def _whole(self, x: str) -> "onnx.ValueInfoProto":
        """Add the output ``action`` of an action without parts."""
        decoder = self._policy.spec.decoder
        if decoder.mode == "argmax":
            best = self._node("ArgMax", x, axis=1, keepdims=0)
            self._node("Add", best, self._constant(np.array(decoder.start, np.int64)), output="action")
            return self._value("action", self._onnx.TensorProto.INT64, decoder.shape)
        self._reshaped(self._boxed(x, decoder.mode, *decoder.bounds, decoder.bins), decoder.shape, output="action")
        return self._value("action", self._onnx.TensorProto.FLOAT, decoder.shape)

    def _parts(self, x: str) -> list["onnx.ValueInfoProto"]:
        """Add an output for each part of an action, named ``action`` and its name."""
        values, start = [], 0
        for part in self._policy.spec.decoder.parts:
            name = f"action.{part.name}" if part.name else "action"
            end = start + sum(part.widths)
            element = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(part.dtype))
            chosen = self._node("Cast", self._chosen(self._sliced(x, start, end), part), to=element)
            self._reshaped(chosen, part.shape, output=name)
            values.append(self._value(name, element, part.shape))
            start = end
        return values

    def _chosen(self, x: str, part: ActionPart) -> str:
        """Add the choice of a part from its outputs: (batch, components)."""
        if part.mode == "sign":
            return self._node("Greater", x, self._scalar(0))
        if part.mode != "argmax":
            low, high = rounded_inside(*part.bounds)
            boxed = self._boxed(x, part.mode, low, high, part.bins)
            if np.issubdtype(part.dtype, np.floating):
                return boxed
            return self._clipped(self._node("Round", boxed), low, high)
        best, start = [], 0
        for choices in part.choices:
            best.append(self._node("ArgMax", self._sliced(x, start, start + choices), axis=1, keepdims=1))
            start += choices
        indices = best[0] if len(best) == 1 else self._node("Concat", *best, axis=1)
        return self._node("Add", indices, self._constant(np.array(part.start, np.int64)))

    def _boxed(self, x: str, mode: str, low: NDArray[np.float32], high: NDArray[np.float32], bins: int) -> str:
        """Add the components of a Box: (batch, components)."""
        if mode == "clip":
            return self._clipped(x, low, high)
        if mode in ("scale", "tanh"):
            one = self._scalar(1.0)
            x = (
                self._node("Tanh", x)
                if mode == "tanh"
                else self._node("Min", self._node("Max", x, self._scalar(-1.0)), one)
            )
            share = self._node("Mul", self._node("Add", x, one), self._scalar(0.5))
            return self._between(share, low, high)
        if mode == "bins":
            grouped = self._reshaped(x, [len(low), bins])
            best = self._node(
                "Cast", self._node("ArgMax", grouped, axis=2, keepdims=0), to=self._onnx.TensorProto.FLOAT
            )
            return self._between(self._node("Div", best, self._scalar(bins - 1)), low, high)
        return x

    def _sliced(self, x: str, start: int, end: int) -> str:
        """Add outputs ``start`` to ``end`` of x: (batch, end - start)."""
        return self._node("Slice", x, *(self._constant(np.array([each], np.int64)) for each in (start, end, 1)))

    def _between(self, share: str, low: NDArray[np.float32], high: NDArray[np.float32]) -> str:
        x = self._node("Add", self._constant(low), self._node("Mul", share, self._constant(high - low)))
        return self._clipped(x, low, high)

    def _clipped(self, x: str, low: NDArray[np.float32], high: NDArray[np.float32]) -> str:
        return self._node("Min", self._node("Max", x, self._constant(low)), self._constant(high))

    def _reshaped(self, x: str, shape: Sequence[int], output: str = "") -> str:
        return self._node("Reshape", x, self._constant(np.array([-1, *shape], np.int64)), output=output)

    def _node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _scalar(self, value: float) -> str:
        return self._constant(np.array(value, np.float32))

    def _constant(self, array: NDArray[Any]) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _value(self, name: str, element: int, shape: Sequence[int]) -> "onnx.ValueInfoProto":
        return self._onnx.helper.make_tensor_value_info(name, element, ["batch", *shape])
