"""A policy as C source: one .c and one .h file, without dependencies.

Owns the two files: weights as data, one call per layer, one statement per component of the action. Invariant: the
compiled policy gives the bits of `Policy` without action noise.
"""

import math
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyes.errors import ConfigError
from pyes.networks import Activation, Instruction, Op, Policy, Program
from pyes.networks.action_part import ActionPart
from pyes.reports.c_functions import source
from pyes.system.files import write_file
from pyes.system.packing import theta_hash

_LARGEST_INT, _LARGEST_IN_FLOAT = 2**31 - 1, 2**24
_LANES = 16  # packed rows are padded to a multiple of it
_ACTIVATIONS = {Activation.TANH: "hyperbolic_tangent", Activation.SIGMOID: "logistic"}


def write(policy: Policy, output: Path) -> None:
    """Write ``output``, which ends in .c, and the header beside it.

    Raises
    ------
    ConfigError
        Torch runs the network, a parameter is not finite, the name cannot begin the names of functions, or a file
        cannot be written.
    """
    name = output.stem
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name):
        raise ConfigError(
            f"cannot export to {output}: its functions begin with {name!r}, expected letters, digits and underscores; "
            "for example policy.c"
        )
    if not isinstance(policy.spec.program, Program):
        raise ConfigError(
            f"{policy.spec.program.name} cannot be exported to .c, since torch runs it; export its state dict as .pt, "
            "or the module by torch.onnx.export to .onnx"
        )
    decoder = policy.spec.decoder
    whole = abs(decoder.start) + decoder.outputs <= _LARGEST_INT and all(
        abs(start) + count <= _LARGEST_IN_FLOAT
        for part in decoder.parts
        for start, count in zip(part.start, part.choices, strict=True)
    )
    if not whole or any(part.dtype == "float16" for part in decoder.parts):
        raise ConfigError(
            "a policy whose actions are of float16, or choices whose numbers an int or, in a part, a float of C does "
            "not have, cannot be exported to .c; export it as .safetensors, or to .onnx"
        )
    written = _Source(policy, name)
    write_file(output, written.code().encode())
    write_file(output.with_suffix(".h"), written.header().encode())


class _Source:
    """Collects the parts of the two files."""

    def __init__(self, policy: Policy, name: str) -> None:
        assert isinstance(policy.spec.program, Program)
        self._policy, self._name, self._program = policy, name, policy.spec.program
        self._data: list[str] = []  # arrays of constants
        self._body: list[str] = []  # statements of the act function
        self._memory = 0  # floats that last from one timestep to the next
        self._widest = self._program.observation_size  # floats in each of the two buffers
        self._free, self._other = "state->a", "state->b"
        self._x = self._observed()
        self._network()
        self._discrete = policy.spec.decoder.mode == "argmax"
        self._actions = [] if self._discrete else list(self._components())
        if self._discrete:
            decoder = policy.spec.decoder
            self._body.append(f"return {decoder.start} + {_call('largest', decoder.outputs, self._x)};")

    def _constants(self, name: str, values: NDArray[np.float32]) -> str:
        """Add an array; return its name."""
        if not np.isfinite(values).all():
            raise ConfigError("the policy has parameters that are not finite, so it cannot be exported to .c")
        literals = [_literal(value) for value in values.ravel().tolist()]
        rows = ("    " + ", ".join(literals[start : start + 6]) for start in range(0, len(literals), 6))
        self._data.append(f"static const float {name}[{len(literals)}] = {{\n" + ",\n".join(rows) + "\n};")
        return name

    def _taken(self, width: int) -> str:
        """Return the free buffer, which what follows may read; the other one is free then."""
        self._widest = max(self._widest, width)
        self._free, self._other = self._other, self._free
        return self._other

    def _observed(self) -> str:
        """Add what happens to the observation before the network; return where it is."""
        policy, size, x = self._policy, self._program.observation_size, "observation"
        mean, inverse_std, encoder = policy.observation_mean, policy.observation_inverse_std, policy.encoder
        if encoder is not None and encoder.hidden and encoder.hide_by == "zero":
            buffer = self._taken(size)
            self._body.append(f"{_call('copy', size, x, buffer)};")
            self._body += [f"{buffer}[{index}] = 0.0f;" for index in encoder.hidden]
            x = buffer
        if mean is not None and inverse_std is not None:
            arrays = self._constants("observation_mean", mean), self._constants("observation_inverse_std", inverse_std)
            buffer = self._taken(size)
            with np.errstate(over="ignore"):  # beyond float32: no limit
                limit = _bound(float(np.float32(policy.spec.observation_clip)))
            self._body.append(f"{_call('normalize', size, *arrays, limit, x, buffer)};")
            x = buffer
        return x

    def _network(self) -> None:
        packed, start = self._policy.runner.packed, 0
        assert packed is not None
        for index, row in enumerate(self._program.instructions):
            if row.op == Op.SCALE:
                self._scale(row)
                continue
            weights, end = _unpacked(row, packed[start:])
            start += end
            self._layer(row, self._constants(f"layer_{index}", weights))

    def _scale(self, row: Instruction) -> None:
        buffer = self._taken(row.outputs)
        factor = f"(1.0f / {row.divisor}.0f)"
        self._loop(row.outputs, f"{buffer}[i] = {self._x}[i] * {factor};")
        self._x = buffer

    def _layer(self, row: Instruction, weights: str) -> None:
        op = Op(row.op)
        buffer = self._taken(row.outputs * (4 if op in (Op.GRU, Op.LSTM) else 1))
        if op.recurrent:
            memory, x = f"state->memory + {self._memory}", self._x
            self._memory += row.inputs + row.outputs * (2 if op is Op.LSTM else 1)
            self._x = f"h{weights.removeprefix('layer')}"
            if op is not Op.RNN:
                call = _call(op.name.lower(), row.inputs, row.outputs, weights, x, memory, buffer)
                self._body.append(f"const float *{self._x} = {call};")
                return
            self._body += [
                f"float *{self._x} = {memory} + {row.inputs};",
                f"{_call('copy', row.inputs, x, memory)};",
                f"{_call('linear', row.inputs + row.outputs, row.outputs, weights, memory, buffer)};",
            ]
            self._activate(row, buffer)
            self._body.append(f"{_call('copy', row.outputs, buffer, self._x)};")
            return
        if op is Op.CONV:
            image = (*row.image, row.rows, row.kernel, row.stride)
            self._body.append(f"{_call('convolution', *image, weights, self._x, buffer)};")
        else:
            self._body.append(f"{_call('linear', row.inputs, row.outputs, weights, self._x, buffer)};")
        self._activate(row, buffer)
        self._x = buffer

    def _activate(self, row: Instruction, buffer: str) -> None:
        activation = Activation(row.activation)
        if activation is not Activation.IDENTITY:
            function = _ACTIVATIONS.get(activation, activation.name.lower())
            self._loop(row.outputs, f"{buffer}[i] = {_call(function, f'{buffer}[i]')};")

    def _loop(self, count: int, statement: str) -> None:
        self._body += [f"for (int i = 0; i < {count}; i++)", f"    {statement}"]

    def _components(self) -> Iterator[str]:
        """Yield the value of each component of the action."""
        decoder = self._policy.spec.decoder
        low, high = (side.tolist() for side in decoder.bounds)
        if not decoder.parts:
            width = decoder.bins or 1
            for index, bounds in enumerate(zip(low, high, strict=True)):
                yield self._component(decoder.mode, index * width, width, *bounds)
            return
        at = index = 0
        for part in decoder.parts:
            for component, width in enumerate(part.widths):
                value = self._component(part.mode, at, width, low[index], high[index])
                if part.mode == "argmax":
                    value = f"(float)({part.start[component]} + {value})"
                elif not np.issubdtype(part.dtype, np.floating) and part.mode != "sign":
                    value = _call("clip", _call("rounded", value), *map(_bound, (low[index], high[index])))
                yield value
                at, index = at + width, index + 1

    def _component(self, mode: str, at: int, width: int, low: float, high: float) -> str:
        output, outputs = f"{self._x}[{at}]", f"{self._x} + {at}"
        match mode:
            case "argmax":
                return _call("largest", width, outputs)
            case "sign":
                return f"{output} > 0.0f ? 1.0f : 0.0f"
            case "clip":
                return _call("clip", output, _bound(low), _bound(high))
            case "scale":
                return _call("scaled", output, _literal(low), _literal(high))
            case "tanh":
                return _call("squashed", output, _literal(low), _literal(high))
            case "bins":
                return _call("binned", width, outputs, _literal(low), _literal(high))
        return output

    def _signature(self, what: str) -> str:
        name = self._name
        if what == "reset":
            return f"void {name}_reset({name}_state *state)"
        if self._discrete:
            return f"int {name}_act({name}_state *state, const float *observation)"
        return f"void {name}_act({name}_state *state, const float *observation, float *action)"

    def code(self) -> str:
        """Return the .c file."""
        body = [*self._body, *(f"action[{index}] = {value};" for index, value in enumerate(self._actions))]
        reset = [f"for (int i = 0; i < {self._memory}; i++)", "    state->memory[i] = 0.0f;"]
        functions = (
            (self._signature("reset"), reset if self._memory else ["(void)state;"]),
            (self._signature("act"), body),
        )
        written = [
            signature + "\n{\n" + "".join(f"    {line}\n" for line in lines) + "}" for signature, lines in functions
        ]
        parts = [_CODE.format(name=self._name), *self._data, source("\n".join(written)), *written]
        return "\n\n".join(part for part in parts if part) + "\n"

    def header(self) -> str:
        """Return the .h file."""
        name, decoder = self._name, self._policy.spec.decoder
        memory = [f"    float memory[{self._memory}]; /* of recurrent layers */\n"] if self._memory else []
        action = "" if self._discrete else f"    {name.upper()}_ACTION_SIZE = {len(self._actions)},\n"
        text = _HEADER.format(
            title=_comment(self._title()),
            handling="".join(f" * {line}\n" for line in self._handling()),
            observation="\n".join(f" *     {_comment(line)}" for line in self._observations()),
            action="\n".join(f" *     {_comment(line)}" for line in self._described()),
            guard=f"{name.upper()}_H",
            sizes=f"    {name.upper()}_OBSERVATION_SIZE = {self._program.observation_size},\n{action}",
            memory="".join(memory),
            widest=max(self._widest, decoder.outputs),
            name=name,
            reset=self._signature("reset"),
            act=self._signature("act"),
        )
        return text

    def _title(self) -> str:
        policy = self._policy
        task = policy.title or "a task without a name"
        network = policy.network.get("name", "network")
        return f"{task}: {network}, generation {policy.generation}, theta {theta_hash(policy.theta)}"

    def _handling(self) -> list[str]:
        told = self._policy.handling
        return [*textwrap.wrap(told, 110), ""] if told else []

    def _observations(self) -> Iterator[str]:
        """Yield a line for each part of the observation: which numbers, and what they are."""
        encoder = self._policy.encoder
        if encoder is None:
            yield f"0 to {self._program.observation_size - 1}: the observation, flattened"
            return
        removed = set(encoder.hidden) if encoder.hide_by == "remove" else set()
        whole = at = 0
        for part in encoder.parts:
            seen = [number for number in range(part.size) if whole + number not in removed]
            whole += part.size
            if seen:
                label = ".".join(map(str, part.keys)) or "the observation"
                some = "" if len(seen) == part.size else f", of it the numbers {', '.join(map(str, seen))}"
                one = f", choices {list(part.choices)}, each a 1 among zeros" if part.choices else ""
                what = f"{label}, a {part.kind} of shape {part.shape}, flattened{one}{some}"
                yield f"{at} to {at + len(seen) - 1}: {what}"
                at += len(seen)
        if encoder.hidden and not removed:
            yield f"the policy does not see numbers {', '.join(map(str, encoder.hidden))}: any value"

    def _described(self) -> Iterator[str]:
        """Yield lines that say what the action is."""
        decoder = self._policy.spec.decoder
        if self._discrete:
            yield f"returned: {decoder.start} to {decoder.start + decoder.outputs - 1}"
            return
        if not decoder.parts:
            yield from self._box(decoder.mode, decoder.shape)
            return
        at = 0
        for part in decoder.parts:
            what = f"{part.name or 'the action'}, a {part.kind} of {part.dtype}, {part.mode}"
            yield f"{at} to {at + part.components - 1}: {what}; from low to high:"
            yield from (f"    {index}: {values}" for index, values in enumerate(_values(part), at))
            at += part.components

    def _box(self, mode: str, shape: tuple[int, ...]) -> Iterator[str]:
        kinds = {
            "identity": "unbounded",
            "clip": "clipped",
            "scale": "scaled",
            "tanh": "by tanh",
            "bins": "the nearest bin",
        }
        yield f"0 to {len(self._actions) - 1}: a Box of shape {shape}, flattened; {kinds[mode]}, from low to high:"
        for index, (low, high) in enumerate(zip(*self._policy.spec.decoder.bounds, strict=True)):
            yield f"    {index}: {low:g} to {high:g}"


def _values(part: ActionPart) -> list[str]:
    """Return the least and the greatest value of each component of a part."""
    if part.kind == "Box":
        return [f"{low:g} to {high:g}" for low, high in zip(part.low, part.high, strict=True)]
    if part.choices:
        return [f"{start} to {start + count - 1}" for start, count in zip(part.start, part.choices, strict=True)]
    return ["0 to 1"] * part.components


def _unpacked(row: Instruction, packed: NDArray[np.float32]) -> tuple[NDArray[np.float32], int]:
    """Return a layer's bias and weights, (1 + inputs, width) without padding, and its length in ``packed``."""
    op = Op(row.op)
    blocks = 4 if op in (Op.GRU, Op.LSTM) else 1
    units = row.rows if op is Op.CONV else row.outputs
    lanes = -(-units // _LANES) * _LANES
    inputs = row.columns + (row.outputs if op.recurrent else 0)
    rows = packed[: (inputs + 1) * blocks * lanes]
    if op is not Op.CONV:
        return rows.reshape(inputs + 1, blocks, lanes)[:, :, :units], len(rows)
    panels = rows[lanes:].reshape(-1, inputs, _LANES).transpose(1, 0, 2).reshape(inputs, lanes)
    return np.vstack([rows[:lanes], panels])[:, :units], len(rows)


def _call(function: str, *arguments: object) -> str:
    return f"{function}({', '.join(map(str, arguments))})"


def _bound(value: float) -> str:
    if math.isfinite(value):
        return _literal(value)
    return _call("float_of_bits", "0x7F800000u" if value > 0 else "0xFF800000u")


def _literal(value: float) -> str:
    """Return a float32 value as a literal that is exactly it."""
    mantissa, exponent = value.hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}f"


def _comment(text: str) -> str:
    return " ".join(text.replace("*/", "* /").replace("/*", "/ *").split("\n")).rstrip("\\")


_CODE = """\
/* Made by pyes export; see {name}.h. */
#include "{name}.h"

/* Every operation is rounded once, as in pyes: products and sums must not be fused. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#elif defined(__GNUC__) /* whose vectoriser fuses a product that is added here and subtracted there, all the same */
#pragma GCC optimize("no-tree-slp-vectorize")
#endif"""

_HEADER = """\
/* A policy, made by pyes export.
 *
 * {title}
 *
 * Begin each episode with the reset function, then call the act function once a timestep. Nothing is allocated, and
 * nothing but C11 is needed; use one state for each robot. No action has the noise of training.
 *
 * Actions have the bits that pyes.load gives if float arithmetic is IEEE 754: compile with -ffp-contract=off (part of
 * -std=c11 with GCC), and never with -ffast-math.
 *
{handling} * Observation, as float; the policy normalises it itself, and it must have no NaN:
{observation}
 * Action:
{action}
 */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

enum {{
{sizes}}};

/* The memory of one policy; its content is not for the caller. */
typedef struct {{
{memory}    float a[{widest}], b[{widest}]; /* used within a timestep */
}} {name}_state;

{reset};
{act};

#ifdef __cplusplus
}}
#endif

#endif
"""
