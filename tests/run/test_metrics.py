import math

import pytest
from samples import row

from pyes.errors import ConfigError, RunDirectoryError
from pyes.run.metrics import COLUMNS, MetricsWriter, NodeRow, NodesWriter, best_evaluation, read_rows

#: The columns that users and tools rely on.
PROMISED = [
    "generation",
    "timesteps",
    "episodes",
    "seconds",
    "return_mean",
    "return_std",
    "return_min",
    "return_max",
    "length_mean",
    "eval_return_mean",
    "eval_return_std",
    "eval_failed_episodes",
    "theta_norm",
    "gradient_norm",
    "sigma",
    "learning_rate",
    "theta_hash",
    "steps_per_second",
    "evaluate_seconds",
    "update_seconds",
    "idle_fraction",
    "failed_members",
    "bytes_sent",
    "bytes_received",
]


def test_promised_columns_are_there():
    assert set(PROMISED) <= set(COLUMNS)


def test_rows_are_on_disk_as_soon_as_they_are_written(tmp_path):
    with MetricsWriter(tmp_path / "metrics.csv") as writer:
        writer.write(row(0, return_mean=-1 / 3))
        (written,) = read_rows(tmp_path / "metrics.csv")
    assert written["return_mean"] == "-0.333333333"
    assert written["eval_return_mean"] == ""


def test_resuming_drops_rows_that_will_be_written_again_and_a_torn_last_line(tmp_path):
    path = tmp_path / "metrics.csv"
    with MetricsWriter(path) as writer:
        for generation in range(5):
            writer.write(row(generation))
    path.write_text(path.read_text()[:-7])
    with MetricsWriter(path, generations=3) as writer:
        assert writer.generation == 3
        writer.write(row(3))
    assert [each["generation"] for each in read_rows(path)] == ["0", "1", "2", "3"]


def test_last_evaluation_is_that_of_the_last_row_that_has_one(tmp_path):
    path = tmp_path / "metrics.csv"
    with MetricsWriter(path) as writer:
        assert writer.last_evaluation is None
        writer.write(row(0, eval_return_mean=2.5, eval_return_std=0.5))
        writer.write(row(1))
        assert writer.last_evaluation == (1, 2.5, 0.5)
    with MetricsWriter(path, generations=2) as writer:
        assert writer.last_evaluation == (1, 2.5, 0.5)
        writer.write(row(2, eval_return_mean=math.nan, eval_return_std=math.nan))  # all of its episodes failed
        assert writer.last_evaluation[0] == 3
        assert math.isnan(writer.last_evaluation[1])
    with MetricsWriter(path, generations=3, task_began=3) as writer:
        assert writer.last_evaluation is None
        writer.write(row(3, eval_return_mean=1.0, eval_return_std=0.0))
        assert writer.last_evaluation == (4, 1.0, 0.0)


def test_unwritable_file_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="cannot write"):
        MetricsWriter(tmp_path / "missing" / "metrics.csv")


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        (lambda text: text.replace("\n2,", "\n7,"), 2),
        (lambda text: text.replace("\n1,", "\nx"), 1),
        (lambda text: text[:20], 0),
        (lambda text: "", 0),
        (lambda text: text[:-1], 4),
        (lambda text: text + "5,1", 5),
        (lambda text: text + "\0" * 200_000, 5),
        (lambda text: text + "\0" * 200_000 + "\n", 5),
    ],
    ids=["gap", "row", "torn header", "empty", "no end", "torn", "zeros", "zeros and an end"],
)
def test_rows_stay_as_far_as_they_are_whole_and_without_a_gap(tmp_path, damage, kept):
    path = tmp_path / "metrics.csv"
    with MetricsWriter(path) as writer:
        for generation in range(5):
            writer.write(row(generation, seconds=generation + 0.5))
    path.write_text(damage(path.read_text()))
    with MetricsWriter(path, generations=10) as writer:
        assert (writer.generation, writer.seconds) == (kept, kept - 0.5 if kept else 0.0)
    assert [each["generation"] for each in read_rows(path)] == [str(i) for i in range(kept)]
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.csv"]


def test_metrics_of_another_version_are_kept_under_another_name(tmp_path, caplog):
    path = tmp_path / "metrics.csv"
    old = "generation,timesteps,seconds,luck\n0,10,1.5,0.7\n1,20,2.5,0.1\n"
    for number in (1, 2):
        path.write_text(old)
        with MetricsWriter(path, generations=2) as writer:
            assert (writer.generation, writer.seconds) == (0, 0.0)
            writer.write(row(0))
        assert [each["generation"] for each in read_rows(path)] == ["0"]
        assert (tmp_path / f"metrics.old-{number}.csv").read_text() == old
        assert (
            f"metrics.csv has other columns than this version writes; it is now {tmp_path}/metrics.old-{number}.csv"
            in (caplog.text)
        )


def test_line_ends_of_an_editor_change_nothing(tmp_path):
    path = tmp_path / "metrics.csv"
    with MetricsWriter(path) as writer:
        writer.write(row(0, seconds=1.5))
    data = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    with MetricsWriter(path, generations=1) as writer:
        assert (writer.generation, writer.seconds) == (1, 1.5)
    assert path.read_bytes() == data


def _node_row(generation):
    return NodeRow(
        generation=generation,
        node="host:1",
        workers=2,
        members=8,
        timesteps=100,
        steps_per_second=1.0,
        idle_fraction=0.0,
        round_trip=0.0,
        bytes_sent=1,
        bytes_received=1,
    )


def test_rows_of_nodes_of_another_version_are_kept_under_another_name(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text("generation,node\n0,host:1\n")
    with NodesWriter(path, generations=1) as writer:
        writer.write([_node_row(1)])
    assert [each["generation"] for each in read_rows(path)] == ["1"]
    assert (tmp_path / "nodes.old-1.csv").read_text() == "generation,node\n0,host:1\n"


def test_rows_of_nodes_that_will_be_written_again_are_dropped(tmp_path):
    path = tmp_path / "nodes.csv"
    with NodesWriter(path, generations=0) as writer:
        for generation in range(3):
            writer.write([_node_row(generation)])
    with NodesWriter(path, generations=2) as writer:
        writer.write([_node_row(2)])
    assert [each["generation"] for each in read_rows(path)] == ["0", "1", "2"]


def test_a_row_of_nodes_that_a_kill_has_cut_is_dropped(tmp_path):
    path = tmp_path / "nodes.csv"
    with NodesWriter(path, generations=0) as writer:
        writer.write([_node_row(0)])
        writer.write([_node_row(1)])
    path.write_bytes(path.read_bytes()[:-5])
    with NodesWriter(path, generations=2) as writer:
        writer.write([_node_row(1)])
    assert [(each["generation"], each["bytes_received"]) for each in read_rows(path)] == [("0", "1"), ("1", "1")]


def test_best_evaluation_is_that_of_all_rows_that_were_there(tmp_path):
    path = tmp_path / "metrics.csv"
    with MetricsWriter(path) as writer:
        assert writer.best_evaluation is None
        for generation, mean in enumerate((None, 3.5, math.nan, 9.25, -4.0)):
            writer.write(row(generation, eval_return_mean=mean, eval_return_std=mean))
        assert writer.best_evaluation == (4, 9.25)
    with MetricsWriter(path, 5) as writer:
        assert writer.best_evaluation == (4, 9.25)
    with MetricsWriter(path, 3) as writer:
        assert writer.best_evaluation == (2, 3.5)


def test_of_means_that_are_equal_in_the_file_the_first_is_the_best(tmp_path):
    first, second = (row(each, eval_return_mean=1000 / 3 + each * 1e-9, eval_return_std=1.0) for each in range(2))
    with MetricsWriter(tmp_path / "metrics.csv") as writer:
        writer.write(first)
        writer.write(second)
        assert writer.best_evaluation == (1, 333.333333)
    with MetricsWriter(tmp_path / "metrics.csv", 1) as writer:
        writer.write(second)
        assert writer.best_evaluation == (1, 333.333333)


def test_last_rows_of_a_long_table_are_read_without_the_rest(tmp_path):
    lines = ["generation,node", *(f"{number},a" for number in range(1000))]
    (tmp_path / "nodes.csv").write_text("\n".join([*lines, "1000"]))
    for most, first in ((102, 984), (10**6, 0)):
        rows = read_rows(tmp_path / "nodes.csv", most)
        assert [int(row["generation"]) for row in rows] == list(range(first, 1000))


@pytest.mark.parametrize("damaged", ["3,100", "3", "x"])
def test_a_row_that_lacks_fields_is_not_the_best(tmp_path, damaged):
    path = tmp_path / "metrics.csv"
    with MetricsWriter(path) as writer:
        writer.write(row(0, eval_return_mean=1.0))
    path.write_text(path.read_text() + f"{damaged}\n")
    assert best_evaluation(read_rows(path)) == (1, 1.0)


def test_bytes_that_are_no_text_are_named_with_the_file(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"generation,timesteps\n\xff\xfe,1\n")
    with pytest.raises(RunDirectoryError, match=r"cannot read .*metrics.csv: .*; train again or restore it"):
        read_rows(path)


def test_a_damaged_generation_is_not_the_best():
    rows = [{"generation": "0", "eval_return_mean": "1"}, {"generation": "x", "eval_return_mean": "5"}]
    assert best_evaluation(rows) == (1, 1.0)


def test_best_evaluation_is_of_the_task_that_began_last(tmp_path):
    with MetricsWriter(tmp_path / "metrics.csv") as writer:
        writer.write(row(0, eval_return_mean=9.0))
        writer.write(row(1, eval_return_mean=8.0))
    with MetricsWriter(tmp_path / "metrics.csv", generations=1, task_began=2) as writer:
        assert writer.best_evaluation is None
        writer.write(row(1, eval_return_mean=8.0))  # written anew after a kill
        assert writer.best_evaluation is None
        writer.write(row(2, eval_return_mean=-3.0))
        assert writer.best_evaluation == (3, -3.0)
    assert best_evaluation(read_rows(tmp_path / "metrics.csv"), since=2) == (3, -3.0)
