/* Runs every group of tests; returns 1 if any check failed. */
#include "checks.h"

int failures = 0;

int main(void)
{
    test_streams();
    test_centered_ranks();
    test_actions();
    test_board();
    test_rays();
    test_episodes();
    test_box2d();
    test_mujoco();
    for (int l = 0; l < PYES_LEVELS; l++) {
        const enum pyes_level level = (enum pyes_level)l;
        if (!pyes_level_available(level))
            continue;
        test_noise(level);
        test_slices(level);
        test_optimizers(level);
        test_networks(level);
        test_float_control(level);
        printf("level %s: done\n", pyes_level_name(level));
    }
    printf("%d checks failed\n", failures);
    return failures != 0;
}
