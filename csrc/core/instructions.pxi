# The instructions of a network: from rows of numbers to layers that a kernel may run (pyes_layer in the header).

cdef int COLUMNS = 8  # of a row without images and normalised layers
cdef list NO_IMAGE = [0, 0, 0, 0, 0, 0, -1]  # the further columns of such a row

# Sizes and places in theta beyond these would overflow the 64 bits in which the kernels multiply them.
cdef int64_t LARGEST = 1 << 26
cdef int64_t FARTHEST = 1 << 48


cdef int _check_shape(object instructions) except -1:
    _array("instructions", instructions, INT64, 2, False)
    if instructions.shape[0] < 1 or instructions.shape[1] not in (COLUMNS, COLUMNS + len(NO_IMAGE)):
        raise ValueError(
            f"instructions: got shape {instructions.shape}, expected (n, {COLUMNS}) or "
            f"(n, {COLUMNS + len(NO_IMAGE)}) with n >= 1"
        )
    return 0


cdef int _read_layer(list row, pyes_layer *layer) except -1:
    """Return the numbers of a row, unchecked."""
    cdef int op, activation
    if len(row) == COLUMNS:
        row = row + NO_IMAGE
    op, layer.inputs, layer.outputs, layer.weight_offset, layer.bias_offset, activation = row[:6]
    layer.recurrent_offset, layer.recurrent_bias_offset = row[6:8]
    layer.channels, layer.height, layer.width, layer.kernel, layer.stride = row[8:13]
    layer.divisor, layer.scale_offset = row[13:]
    layer.op, layer.activation = <pyes_op>op, <pyes_activation>activation
    return 0


cdef bint _is_recurrent(pyes_layer *layer) noexcept:
    return PYES_RNN <= layer.op <= PYES_LSTM


cdef int _check_layer(Py_ssize_t k, pyes_layer *layer, Py_ssize_t expected_inputs) except -1:
    where = f"instructions[{k}]"
    if not PYES_LINEAR <= layer.op <= PYES_SCALE:
        raise ValueError(
            f"{where}: got op {<int>layer.op}, expected 0 (linear), 1 (rnn), 2 (gru), 3 (lstm), 4 (conv) or 5 (scale)"
        )
    if layer.inputs != expected_inputs:
        raise ValueError(f"{where}: got {layer.inputs} inputs, expected {expected_inputs} (what comes before it)")
    if not 0 <= layer.inputs <= LARGEST or not 1 <= layer.outputs <= LARGEST:
        raise ValueError(
            f"{where}: got {layer.inputs} inputs and {layer.outputs} outputs, expected at least 1 output, "
            f"and at most {LARGEST} of each"
        )
    cdef bint weightless = layer.op == PYES_SCALE, recurrent = _is_recurrent(layer)
    _check_offset(where, "weight_offset", layer.weight_offset, -1 if weightless else 0)
    _check_offset(where, "bias_offset", layer.bias_offset, -1)
    _check_offset(where, "recurrent_offset", layer.recurrent_offset, 0 if recurrent else -1)
    _check_offset(where, "recurrent_bias_offset", layer.recurrent_bias_offset, -1)
    cdef int last = PYES_SOFTSIGN if layer.op in (PYES_LINEAR, PYES_RNN, PYES_CONV) else PYES_IDENTITY
    if not 0 <= <int>layer.activation <= last:
        raise ValueError(f"{where}: got activation {<int>layer.activation}, expected 0 to {last}")
    _check_image(where, layer)
    return 0


cdef int _check_offset(str where, str name, int64_t offset, int64_t lowest) except -1:
    """Check an offset in theta; -1 stands for a missing array."""
    if not lowest <= offset < FARTHEST:
        raise ValueError(f"{where}: got {name} {offset}, expected {lowest} <= {name} < {FARTHEST}")
    return 0


cdef int _check_image(str where, pyes_layer *layer) except -1:
    """Check the columns of convolutions, scale layers and normalised layers."""
    if layer.op == PYES_SCALE and (layer.outputs != layer.inputs or layer.divisor < 1):
        raise ValueError(
            f"{where}: got {layer.outputs} outputs and the divisor {layer.divisor}, "
            f"expected {layer.inputs} and at least 1"
        )
    _check_offset(where, "scale_offset", layer.scale_offset, -1)
    if layer.scale_offset >= 0 and layer.op not in (PYES_LINEAR, PYES_CONV):
        raise ValueError(
            f"{where}: got scale_offset {layer.scale_offset}, expected -1 (only linear and conv can be normalised)"
        )
    if layer.op != PYES_CONV:
        return 0
    shape = [layer.channels, layer.height, layer.width]
    image = f"an image of {' x '.join(map(str, shape))}"
    if min(shape) < 1 or math.prod(shape) != layer.inputs:
        raise ValueError(f"{where}: got {image}, expected {layer.inputs} values")
    if layer.stride < 1 or not 1 <= layer.kernel <= min(layer.height, layer.width):
        raise ValueError(
            f"{where}: got kernel {layer.kernel} and stride {layer.stride} over {image}, "
            f"expected a kernel of 1 to {min(layer.height, layer.width)} and a stride of at least 1"
        )
    if layer.outputs % pyes_conv_pixels(layer):
        raise ValueError(f"{where}: got {layer.outputs} outputs, expected a multiple of {pyes_conv_pixels(layer)}")
    return 0
