from aerobee.telemetry.metrics import Histogram, family, histogram_family, labels_of


def test_a_family_has_a_head_and_a_line_for_each_series() -> None:
    text = "".join(family("a_total", "counter", "How many", [('x="1"', 2), ("", 0.5)]))
    assert text == '# HELP a_total How many\n# TYPE a_total counter\na_total{x="1"} 2\na_total 0.5\n'


def test_a_family_without_series_has_no_text() -> None:
    assert list(family("a", "gauge", "Nothing", [])) == []


def test_a_histogram_counts_up_to_each_bound() -> None:
    found = Histogram((1, 5))
    for value in (0.5, 1, 3, 5, 6):
        found.add(value)
    found.add(2, times=10)
    text = "".join(histogram_family("t", "Times", [('a="b"', found)]))
    assert text.splitlines()[2:] == [
        't_bucket{a="b",le="1.0"} 2',
        't_bucket{a="b",le="5.0"} 14',
        't_bucket{a="b",le="+Inf"} 15',
        't_count{a="b"} 15',
        't_sum{a="b"} 35.5',
    ]


def test_histograms_merge() -> None:
    one, other = Histogram((1,), [1, 2], 5.0), Histogram((1,), [3, 4], 6.0)
    one.merge(other)
    assert (one.counts, one.total, one.count) == ([4, 6], 11.0, 10)


def test_a_name_cannot_end_its_label() -> None:
    assert labels_of({"topic": 'a"} 1\nforged{x="\\'}) == 'topic="a\\"} 1\\nforged{x=\\"\\\\"'
