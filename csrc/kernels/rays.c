/* Where rays first meet a terrain, as b2World::RayCast of Box2D 2.3 has it, bit for bit: the same float operations in the
 * same order for each shape. Its tree only leaves out shapes that a ray does not come near, and so does `apart`: first all
 * rays together, then each. */
#include "float_control.h"
#include "wide.h"

enum { CORNERS = 4 };

#define REACH 0.1f /* at least this far apart: much more than any rounding, and what Box2D's own tree allows */

struct span {
    float low, high; /* along x */
};

PYES_INLINE struct span around(float a, float b)
{
    return a < b ? (struct span){a, b} : (struct span){b, a};
}

PYES_INLINE struct span widened(struct span all, float x)
{
    return (struct span){x < all.low ? x : all.low, x > all.high ? x : all.high};
}

PYES_INLINE int apart(struct span a, struct span b)
{
    return a.high + REACH < b.low || b.high + REACH < a.low;
}

/* The fraction of the ray from (x, y) by (dx, dy) at which it meets a segment; 1 if it does not. */
static float meet_segment(float x, float y, float dx, float dy, const float *segment)
{
    const float rx = segment[2] - segment[0], ry = segment[3] - segment[1];
    float nx = ry, ny = -rx;
    const float length = sqrtf(nx * nx + ny * ny);
    if (length >= FLT_EPSILON) {
        const float inverse = 1.0f / length;
        nx *= inverse;
        ny *= inverse;
    }
    const float numerator = nx * (segment[0] - x) + ny * (segment[1] - y);
    const float denominator = nx * dx + ny * dy;
    if (denominator == 0.0f)
        return 1.0f;
    const float t = numerator / denominator;
    if (t < 0.0f || 1.0f < t)
        return 1.0f;
    const float squared = rx * rx + ry * ry;
    if (squared == 0.0f)
        return 1.0f;
    const float qx = x + t * dx, qy = y + t * dy;
    const float s = ((qx - segment[0]) * rx + (qy - segment[1]) * ry) / squared;
    return s < 0.0f || 1.0f < s ? 1.0f : t;
}

/* The same for a convex quadrilateral: corners (4), each x, y and the outward normal of the side that begins there. */
static float meet_quad(float x, float y, float dx, float dy, const float *corners)
{
    float lower = 0.0f, upper = 1.0f;
    int entered = 0;
    for (int i = 0; i < CORNERS; i++) {
        const float *corner = corners + 4 * i;
        const float numerator = corner[2] * (corner[0] - x) + corner[3] * (corner[1] - y);
        const float denominator = corner[2] * dx + corner[3] * dy;
        if (denominator == 0.0f) {
            if (numerator < 0.0f)
                return 1.0f;
        } else if (denominator < 0.0f && numerator < lower * denominator) {
            lower = numerator / denominator;
            entered = 1;
        } else if (denominator > 0.0f && numerator < upper * denominator) {
            upper = numerator / denominator;
        }
        if (upper < lower)
            return 1.0f;
    }
    return entered ? lower : 1.0f;
}

/* The rays of a lidar, and the span of all of them. */
struct lidar {
    int64_t rays;
    const double *offsets;
    float x, y;
    struct span all;
};

typedef float (*fraction_of)(float x, float y, float dx, float dy, const float *shape);

/* Shortens the rays that meet a shape before all that they met so far. */
PYES_INLINE void shorten(const struct lidar *lidar, fraction_of meet, const float *shape, struct span own, float *out)
{
    const float x = lidar->x, y = lidar->y;
    if (apart(lidar->all, own))
        return;
    for (int64_t i = 0; i < lidar->rays; i++) {
        const double *offset = lidar->offsets + 2 * i;
        const float end_x = (float)((double)x + offset[0]), end_y = (float)((double)y + offset[1]);
        if (apart(around(x, end_x), own))
            continue;
        const float t = meet(x, y, end_x - x, end_y - y, shape);
        out[i] = t < out[i] ? t : out[i];
    }
}

void pyes_ray_fractions(int64_t rays, const double *offsets, float x, float y, int64_t segments, const float *segment,
                        int64_t quads, const float *quad, float *out)
{
    const uint64_t found = standard_arithmetic();
    struct lidar lidar = {rays, offsets, x, y, {x, x}};
    for (int64_t i = 0; i < rays; i++) {
        lidar.all = widened(lidar.all, (float)((double)x + offsets[2 * i]));
        out[i] = 1.0f;
    }
    for (int64_t i = 0; i < segments; i++, segment += 4)
        shorten(&lidar, meet_segment, segment, around(segment[0], segment[2]), out);
    for (int64_t i = 0; i < quads; i++, quad += 4 * CORNERS)
        shorten(&lidar, meet_quad, quad, widened(widened(around(quad[0], quad[4]), quad[8]), quad[12]), out);
    restore_arithmetic(found);
}
