# Rays: what a lidar sees of a fixed terrain (kernels/rays.c).

@final
cdef class Rays:
    """Rays from a point that moves over a terrain of segments and convex quadrilaterals, as Box2D casts them.

    Parameters
    ----------
    offsets : float64 (rays, 2)
        Ends of the rays, relative to the point.
    segments : float32 (n, 4)
        x and y of one end, and of the other.
    quads : float32 (m, 4, 4)
        x and y of each corner, and of the outward normal of the side that begins there.
    """
    cdef object arrays  # own the memory
    cdef const double *offsets
    cdef const float *segments
    cdef const float *quads
    cdef int64_t rays, segment_count, quad_count

    def __cinit__(self, offsets, segments, quads):
        self.arrays = tuple(np.array(each, order="C") for each in (offsets, segments, quads))
        self.offsets = <const double *>_array("offsets", self.arrays[0], FLOAT64, 2, False)
        self.segments = <const float *>_array("segments", self.arrays[1], FLOAT32, 2, False)
        self.quads = <const float *>_array("quads", self.arrays[2], FLOAT32, 3, False)
        self.rays, self.segment_count, self.quad_count = map(len, self.arrays)
        for name, array, shape in zip(("offsets", "segments", "quads"), self.arrays, ((2,), (4,), (4, 4))):
            if array.shape[1:] != shape:
                raise ValueError(f"{name}: got the shape {array.shape}, expected (n, {', '.join(map(str, shape))})")

    def cast(self, float x, float y, out):  # OUT
        """Write the fraction of each ray from (x, y) at which it first meets the terrain, 1 where it does not."""
        _same_length("out", out, self.rays, "offsets")
        pyes_ray_fractions(self.rays, self.offsets, x, y, self.segment_count, self.segments, self.quad_count, self.quads,
                           <float *>_out("out", out, FLOAT32))
