"""``pyes evaluate | replay``: run the policy of a run, or one individual, again."""

import argparse
import math
from pathlib import Path

from pyes.cli.arguments import Add, add_episodes, add_generation, add_json, add_run, index
from pyes.cli.output import print_json, running_environments
from pyes.errors import PyesError
from pyes.system.text import counted, rounded, spread, tell


def add_commands(add: Add) -> None:
    """Add these commands to the program."""
    _add_evaluate(add("evaluate", _evaluate, "run the center policy of a run on fixed seeds and report its returns"))
    _add_replay(add("replay", _replay, "rebuild one individual of a run and run its episodes again: the same return"))


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_generation(parser)
    add_episodes(parser, None, "100; 1 of a function")
    add_json(parser)


def _evaluate(options: argparse.Namespace) -> None:
    from pyes.reports import replay

    with running_environments():
        evaluation = replay.evaluate(
            options.run, episodes=options.episodes, seed=options.seed, generation=options.generation
        )
    if options.json:
        print_json(evaluation.to_dict())
        return
    pairs = zip(evaluation.returns, evaluation.lengths, strict=True)
    known, lengths = zip(*(pair for pair in pairs if math.isfinite(pair[0])), strict=True)  # at least one
    least, most = min(known), max(known)
    mean = spread(evaluation.return_mean, evaluation.return_std)
    print(f"return {mean} over {counted(len(known), 'episode')}", end=" ")
    print(f"(min {rounded(least, most)}, max {rounded(most, least)})", end=", ")
    print(f"length {sum(lengths) / len(lengths):.1f}")
    if lost := len(evaluation.returns) - len(known):
        print(f"{counted(lost, 'episode')} failed: {evaluation.error}")


def _add_replay(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--generation", metavar="G", type=index, required=True, help="the individual's generation, from 0"
    )
    parser.add_argument("--member", metavar="M", type=index, required=True, help="its number in the generation")
    parser.add_argument("--video", metavar="FILE", type=Path, help="video to write, for example member.mp4")
    add_json(parser)


def _replay(options: argparse.Namespace) -> None:
    from pyes.reports import replay

    with running_environments():
        if options.video is None:
            with replay.open(options.run) as individuals:
                playback = individuals.play(options.generation, options.member)
        else:
            from pyes.reports import video

            playback = video.record_member(options.run, options.video, options.generation, options.member, tell)
    if options.json:
        print_json(playback.to_dict())
    else:
        seeds = ", ".join(map(str, playback.seeds))
        print(f"return {playback.return_:.9g}, length {playback.length}, environment seed {seeds}")
    if not playback.exact:
        raise PyesError(
            f"the journal has return {playback.recorded_return!r} and length {playback.recorded_length}, "
            f"got {playback.return_!r} and {playback.length}; {playback.suspects}"
        )
