"""metrics.jsonl: appends, a line cut by a kill, cutting back at a resume."""

import pytest

from dream.store import MetricsError, MetricsLog


@pytest.fixture
def log(tmp_path):
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        yield log


def record(iteration, **more):
    return {"iteration": iteration, "states": 10 * iteration, "seconds": 0.5, **more}


def fill(log, count):
    for iteration in range(1, count + 1):
        log.append(record(iteration, **{"loss/advantage_0": 0.1 * iteration}))


def test_reads_back_what_was_appended_without_closing(log):
    fill(log, 3)
    assert log.read() == [record(t, **{"loss/advantage_0": 0.1 * t}) for t in (1, 2, 3)]


def test_no_file_is_no_records(log):
    assert log.read() == []
    assert log.truncate_after(3) == []
    assert not log.path.exists()


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_last_line_cut_anywhere_is_dropped_and_overwritten(log, cut):
    fill(log, 3)
    log.close()
    content = log.path.read_bytes()
    line = content.splitlines(keepends=True)[-1]
    cut = min(cut, len(line))
    log.path.write_bytes(content[:-cut])
    assert [each["iteration"] for each in log.read()] == [1, 2]
    log.append(record(3, again=True))
    assert log.read()[1:] == [record(2, **{"loss/advantage_0": 0.2}), record(3, again=True)]


def test_truncate_keeps_bytes_and_order(log):
    fill(log, 5)
    log.sync()
    whole = log.path.read_bytes().splitlines(keepends=True)
    assert [each["iteration"] for each in log.truncate_after(3)] == [1, 2, 3]
    assert log.path.read_bytes() == b"".join(whole[:3])
    log.append(record(4))
    assert [each["iteration"] for each in log.read()] == [1, 2, 3, 4]


@pytest.mark.parametrize("line", ["not json", "[1]", '{"states": 3}', '{"iteration": "3"}', ""])
def test_a_foreign_line_in_the_middle_is_named(log, line):
    fill(log, 2)
    log.close()
    first, second = log.path.read_text().splitlines()
    log.path.write_text(f"{first}\n{line}\n{second}\n")
    with pytest.raises(MetricsError, match=r"metrics\.jsonl line 2"):
        log.read()


EVALUATION = {
    "nash_conv_chips": 0.2,
    "exploitability_chips": 0.1,
    "exploitability_milli": 100.0,
    "unit": "mA/g",
    "average": "bank",
}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"iteration": 2}, "no number as states and seconds"),
        (record(2, states="20"), "no number as states"),
        (record(2, seconds=None), "no number as seconds"),
        (record(True), "not a metrics record"),
        (record(2, exploitability_milli=3.0), "half an evaluation"),
        (record(2, **{**EVALUATION, "unit": None}), "wrong value of unit"),
        (record(2, **{**EVALUATION, "nash_conv_chips": "0.2"}), "wrong value of nash_conv_chips"),
        (record(2, **{"loss/advantage_0": [1]}), "wrong value of loss/advantage_0"),
    ],
)
def test_records_that_readers_cannot_use_are_named(log, wrong, words):
    log.append(record(1, **EVALUATION))
    log.append(record(2, **{"loss/advantage_0": None}))
    assert len(log.read()) == 2
    log.append(wrong)
    with pytest.raises(MetricsError, match=rf"metrics\.jsonl line 3 .*{words}"):
        log.read()


@pytest.mark.parametrize("refused", [{}, {"iteration": 1.5}, {"iteration": 1, "loss/x": float("nan")}])
def test_records_that_could_not_be_read_back_are_refused(log, refused):
    with pytest.raises(ValueError, match=r"iteration|JSON"):
        log.append(refused)
    assert log.read() == []
