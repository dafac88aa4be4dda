# Ranks of returns, and steps of theta and sigma (kernels/ranks.c, optimizers.c, deviation.c).

def centered_ranks(returns, out):  # IN, OUT
    """Rank returns, scaled to [-0.5, 0.5]; ties share their mean rank, NaN ranks lowest.

    Parameters
    ----------
    returns : float64 (n,)
    out : float32 (n,)
        Sums to 0; a single return has rank 0.

    Raises
    ------
    TypeError, ValueError
        Another type, lengths that differ, ``out`` is read-only.
    """
    cdef const double *p_returns = <const double *>_in("returns", returns, FLOAT64)
    cdef float *p_out = <float *>_out("out", out, FLOAT32)
    cdef int64_t n = len(returns)
    _same_length("out", out, n, "returns")
    _disjoint("out", out, "returns", returns)
    workspace = np.empty(2 * n, INT64)
    cdef int64_t *p_workspace = <int64_t *>_out("workspace", workspace, INT64)
    with nogil:
        pyes_centered_ranks(n, p_returns, p_workspace, p_out)


def adam_step(theta, gradient, m, v, step, learning_rate, beta1, beta2, epsilon, weight_decay, *, level=None):
    """Take one step of Adam uphill, in place, with decoupled weight decay.

    ``theta += learning_rate * m_hat / (sqrt(v_hat) + epsilon) - learning_rate * weight_decay * theta``

    Parameters
    ----------
    theta, m, v : float32 (dim,)
        Changed; m and v begin as zeros.
    gradient : float32 (dim,)
        Ascent direction.
    step : int
        Number of this step, from 1.

    Raises
    ------
    TypeError, ValueError
        Types or lengths differ, arrays overlap or are read-only, 0 <= beta < 1 does not hold, epsilon is 0 as a float32.

    Notes
    -----
    Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019. Equal bits on every machine; releases the GIL.
    """
    cdef float *p_theta = <float *>_out("theta", theta, FLOAT32)  # IN, OUT
    cdef const float *p_gradient = <const float *>_in("gradient", gradient, FLOAT32)  # IN
    cdef float *p_m = <float *>_out("m", m, FLOAT32)  # IN, OUT
    cdef float *p_v = <float *>_out("v", v, FLOAT32)  # IN, OUT
    _separate({"theta": theta, "gradient": gradient, "m": m, "v": v})
    cdef int64_t dim = len(theta), t = <int64_t>_integer("step", step, 1 << 63)
    cdef double rate = learning_rate, b1 = _share("beta1", beta1), b2 = _share("beta2", beta2)
    cdef double eps = epsilon, decay = weight_decay
    cdef pyes_level build = _level(level)
    if not <float>eps > 0:
        raise ValueError(f"epsilon: got {epsilon}, expected one that is > 0 as a float32")
    if t < 1:
        raise ValueError(f"step: got {t}, expected step >= 1 (the number of this step)")
    with nogil:
        pyes_adam_step(build, dim, p_gradient, t, rate, b1, b2, eps, decay, p_theta, p_m, p_v)


def sgd_step(theta, gradient, velocity, learning_rate, momentum, weight_decay, *, level=None):
    """Take one step of gradient ascent with momentum, in place, with decoupled weight decay.

    ``velocity = momentum * velocity + gradient``;
    ``theta += learning_rate * velocity - learning_rate * weight_decay * theta``; arrays float32 (dim,).
    """
    cdef float *p_theta = <float *>_out("theta", theta, FLOAT32)  # IN, OUT
    cdef const float *p_gradient = <const float *>_in("gradient", gradient, FLOAT32)  # IN
    cdef float *p_velocity = <float *>_out("velocity", velocity, FLOAT32)  # IN, OUT
    _separate({"theta": theta, "gradient": gradient, "velocity": velocity})
    cdef int64_t dim = len(theta)
    cdef double rate = learning_rate, inertia = momentum, decay = weight_decay
    cdef pyes_level build = _level(level)
    with nogil:
        pyes_sgd_step(build, dim, p_gradient, rate, inertia, decay, p_theta, p_velocity)


def clipup_step(theta, gradient, velocity, learning_rate, momentum, max_speed, weight_decay, *, level=None):
    """Take one step of ClipUp (Toklu et al. 2020, algorithm 1) uphill, in place, with decoupled weight decay.

    ``velocity = momentum * velocity + learning_rate * gradient / |gradient|``, shortened to ``max_speed``;
    ``theta += velocity - learning_rate * weight_decay * theta``; arrays float32 (dim,).
    """
    cdef float *p_theta = <float *>_out("theta", theta, FLOAT32)  # IN, OUT
    cdef const float *p_gradient = <const float *>_in("gradient", gradient, FLOAT32)  # IN
    cdef float *p_velocity = <float *>_out("velocity", velocity, FLOAT32)  # IN, OUT
    _separate({"theta": theta, "gradient": gradient, "velocity": velocity})
    cdef int64_t dim = len(theta)
    cdef double rate = learning_rate, inertia = momentum, decay = weight_decay
    cdef double limit = _at_least("max_speed", max_speed, 0)
    cdef pyes_level build = _level(level)
    with nogil:
        pyes_clipup_step(build, dim, p_gradient, rate, inertia, limit, decay, p_theta, p_velocity)


def deviation_step(deviation, gradient, learning_rate, max_change, *, level=None):
    """Change each parameter's sigma by the factor ``1 + learning_rate * gradient``, within ``max_change``, in place.

    ``deviation += clip(learning_rate * gradient, -max_change, max_change) * deviation``; arrays float32 (dim,).
    """
    cdef float *p_deviation = <float *>_out("deviation", deviation, FLOAT32)  # IN, OUT
    cdef const float *p_gradient = <const float *>_in("gradient", gradient, FLOAT32)  # IN
    _separate({"deviation": deviation, "gradient": gradient})
    cdef int64_t dim = len(deviation)
    cdef double rate = learning_rate, limit = _at_least("max_change", max_change, 0)
    cdef pyes_level build = _level(level)
    with nogil:
        pyes_deviation_step(build, dim, p_gradient, rate, limit, p_deviation)


def snes_step(theta, deviation, gradient, deviation_gradient, learning_rate, deviation_rate, *, level=None):
    """Take one step of SNES (Schaul, Glasmachers & Schmidhuber 2011, algorithm 1) uphill, in place.

    ``theta += learning_rate * deviation * gradient``; ``deviation *= exp(deviation_rate / 2 * deviation_gradient)``;
    arrays float32 (dim,). The exponential has a relative error below 2.5e-7, and equal bits on every machine.
    """
    cdef float *p_theta = <float *>_out("theta", theta, FLOAT32)  # IN, OUT
    cdef float *p_deviation = <float *>_out("deviation", deviation, FLOAT32)  # IN, OUT
    cdef const float *p_gradient = <const float *>_in("gradient", gradient, FLOAT32)  # IN
    cdef const float *p_second = <const float *>_in("deviation_gradient", deviation_gradient, FLOAT32)  # IN
    _separate(
        {"theta": theta, "deviation": deviation, "gradient": gradient, "deviation_gradient": deviation_gradient}
    )
    cdef int64_t dim = len(theta)
    cdef double rate = learning_rate, second_rate = deviation_rate
    cdef pyes_level build = _level(level)
    with nogil:
        pyes_snes_step(build, dim, p_gradient, p_second, rate, second_rate, p_theta, p_deviation)
