"""Methods compared over several studies: means over studies, intervals, and the paired test."""

import itertools
import json
import shutil
import statistics

import pandas as pd
import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists
from scipy import stats
from typer.testing import CliRunner

from unweave import UsageError
from unweave.cli import app
from unweave.evaluation.distances import TOW_FACTORS
from unweave.lab.report import compare, grids, read_results
from unweave.lab.report.compare_estimates import MeanOverStudies, holm
from unweave.lab.report.compare_measures import NOTES, PLANES
from unweave.lab.report.measures import Place
from unweave.lab.report.results import Group, Value
from unweave.lab.study import Store

FORGET = {"one": (0.02, 0.04), "two": (0.10, 0.20)}  # forget accuracy of two seeds, by study


def study(folder, name, methods, *, benchmark="tiny"):
    """Write a study: ``methods`` maps a method (and profile) to forget, adjacent and remote accuracy of each seed."""
    store = Store.create(folder / name, benchmark, options={"forget": name})
    rows = [
        {"method": method.split()[0], "profile": (method.split()[1:] or ["official"])[0], "variant": "", "seed": seed}
        | {"split": "test"}
        | {
            "benchmark": benchmark,
            "subset": subset,
            "metric": "accuracy",
            "value": float(value),
            "low": None,
            "high": None,
        }
        for method, seeds in methods.items()
        for seed, values in enumerate(seeds)
        for subset, value in zip(("forget", "adjacent", "remote"), values, strict=True)
    ]
    pd.DataFrame(rows).to_parquet(store.table)
    return read_results(folder / name)


def two_studies(tmp_path, **more):
    original = [(0.9, 0.8, 0.9), (0.9, 0.9, 0.9)]
    baseline = [(0.0, 0.7, 0.9), (0.0, 0.8, 0.9)]
    return [
        study(
            tmp_path,
            name,
            {"original": original, "two-stage": baseline, "unweave": [(f, 0.8, 0.9) for f in forget], **more},
        )
        for name, forget in FORGET.items()
    ]


def test_a_study_counts_once_however_many_seeds_it_has(tmp_path):
    found = compare(two_studies(tmp_path))
    group = next(group for group in found.names if group.method == "unweave")
    own, apart = found.own[group]["test_forget"], found.difference[group]["test_forget"]
    means = [statistics.fmean(values) for values in FORGET.values()]
    assert own.mean == pytest.approx(statistics.fmean(means))
    assert own.reach == pytest.approx(stats.t.ppf(0.975, 1) * statistics.stdev(means) / 2**0.5)
    assert apart.p == pytest.approx(stats.ttest_rel(means, [0.0, 0.0]).pvalue)
    # relative to the original of the same seed: 0 and −0.1
    assert found.own[group]["adjacent"].mean == pytest.approx(-0.05)
    kept = (1, 0.8 / 0.9)
    assert found.own[group]["erase_score"].mean == pytest.approx(
        statistics.fmean(
            statistics.harmonic_mean([1 - forget, adjacent, 1])
            for values in FORGET.values()
            for forget, adjacent in zip(values, kept, strict=True)
        )
    )
    assert (own.studies, own.runs) == (2, 4)


def test_of_a_method_with_several_profiles_the_first_is_the_baseline(tmp_path):
    runs = [(0.1, 0.8, 0.9), (0.2, 0.8, 0.9)]
    studies = two_studies(tmp_path, **{"two-stage tuned": runs})
    found = compare(studies)
    assert found.names[found.baseline] == "two-stage official"
    assert found.names[compare(studies, baseline="two-stage tuned").baseline] == "two-stage tuned"
    tuned = next(group for group in found.names if group.profile == "tuned")
    assert found.difference[tuned]["test_forget"].mean == pytest.approx(0.15)


def test_one_study_is_compared_over_its_seeds(tmp_path):
    found = compare(two_studies(tmp_path)[:1])
    group = next(group for group in found.names if group.method == "unweave")
    apart = found.difference[group]["test_forget"]
    assert (apart.p, apart.holm) == (None, None)  # seeds of one study share their data: no test
    assert apart.reach == pytest.approx(stats.t.ppf(0.975, 1) * abs(FORGET["one"][0] - FORGET["one"][1]) / 2)
    own, paired = grids(found)
    assert "seeds of one study" in own.notes[0]
    assert "p=" not in " ".join(entry.text for row in paired.rows for entry in row.entries)
    assert "test" not in paired.notes[0].lower()


def test_the_tables_show_p_corrected_for_all_their_tests(tmp_path):
    """Each table is a family of its own: every method, every measure of the goal."""
    one, two = [(0.1, 0.7, 0.9), (0.2, 0.75, 0.9)], [(0.1, 0.8, 0.8), (0.3, 0.6, 0.7)]
    studies = [
        study(tmp_path, name, {"original": one, "two-stage": one, "ft": ft, "ga": ga})
        for name, ft, ga in (("one", two, one[::-1]), ("two", two[::-1], two), ("three", one[::-1], two[::-1]))
    ]
    found = compare(studies)
    table = next(grid for grid in grids(found) if grid.name == "compare-erase-paired")
    alone = [one.p for of in found.difference.values() for one in of.values() if one.p is not None]
    assert len(alone) > 4
    shown = [row[f"{name}_holm"] for row in table.records for name in found.difference[Group(*list(row.values())[:3])]]
    assert sorted(value for value in shown if value is not None) == pytest.approx(sorted(holm(alone)))
    assert f"for all {len(alone)} tests here" in table.notes[0]
    for row, record in zip(table.rows, table.records, strict=True):
        assert f"p={record['test_forget_holm']:.2g}" in row.entries[0].text


@given(lists(floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(values):
    """The slow way: a hypothesis falls when every set of hypotheses that holds it does, by Bonferroni."""
    places = range(len(values))
    sets = [some for size in range(1, len(values) + 1) for some in itertools.combinations(places, size)]
    slow = [
        max(min(1.0, len(some) * min(values[other] for other in some)) for some in sets if place in some)
        for place in places
    ]
    assert holm(values) == pytest.approx(slow)


def test_holm_gives_what_statsmodels_gives():
    values = [0.0004, 0.03, 0.11, 0.02, 0.0004, 0.5, 0.9, 0.013]
    expected = [0.0032, 0.12, 0.33, 0.1, 0.0032, 1.0, 1.0, 0.078]  # statsmodels 0.15, multipletests(method="holm")
    assert holm(values) == pytest.approx(expected)


def test_differences_that_do_not_spread_have_an_interval_of_nothing_and_no_p(tmp_path):
    """Equal differences say nothing about chance; 0.3 − 0.2 and 0.4 − 0.3 are equal up to rounding."""
    shifted = [(0.5, 0.7 - 0.1, 0.9), (0.5, 0.8 - 0.1, 0.9)]
    found = compare(two_studies(tmp_path, pgd=[(0.0, 0.7, 0.9)] * 2, ft=shifted)[:1])
    by_method = {group.method: of for group, of in found.difference.items()}
    for method, measure, mean in (("pgd", "test_forget", 0), ("ft", "test_forget", 0.5), ("ft", "adjacent", -0.1)):
        one = by_method[method][measure]
        assert one.mean == pytest.approx(mean)
        assert one.reach == pytest.approx(0)
        assert one.p is None
    assert by_method["ft"]["test_forget"].text("accuracy", signed=True) == "+50.0±0.0"
    assert MeanOverStudies(0.5).text("accuracy") == "50.0"  # a single value has no spread


def test_a_seed_that_a_method_lacks_counts_for_neither_side_of_a_pair(tmp_path):
    # The second seed is hard for every method. pgd equals the baseline where it ran, and did not finish that seed.
    baseline = {"one": [(0.02, 0.81, 0.8), (0.3, 0.5, 0.5)], "two": [(0.04, 0.79, 0.8), (0.2, 0.5, 0.5)]}
    studies = [study(tmp_path, name, {"two-stage": runs, "pgd": runs[:1]}) for name, runs in baseline.items()]
    found = compare(studies)
    of = next(of for group, of in found.difference.items() if group.method == "pgd")
    assert {one.mean for one in of.values()} == {0}
    own, paired = grids(found)
    assert [(row.name, row.entries[0].text) for row in own.rows] == [("two-stage", "4"), ("pgd", "2")]
    assert own.columns[0].heading == "runs"
    assert "2 to 4 runs" in own.notes[0]
    assert (paired.records[0]["runs"], paired.columns[0].heading) == (
        2,
        "test forget ↓",
    )  # a single row has a single number of runs
    assert "over 2 studies (2 runs of a method)" in paired.notes[0]


def test_a_measure_of_fewer_runs_says_so(tmp_path):
    """A measure that needs a retrained model may exist for some seeds or studies only."""
    studies = two_studies(tmp_path)
    ours, theirs = (next(g for g in studies[0].groups if g.method == name) for name in ("unweave", "two-stage"))
    for group, count in ((theirs, 2), (ours, 1)):
        studies[0].values[group][Place("", "", "tow_split")] = {seed: Value(0.9 + seed / 10) for seed in range(count)}
    del studies[0].values[ours][Place("test", "adjacent", "accuracy")][1]
    tables = {grid.name: grid for grid in grids(compare(studies))}
    assert "over 1 study (1 run of a method)" in tables["compare-retrain-paired"].notes[0]
    assert "over 1 study (1 to 2 runs of a method)" in tables["compare-retrain"].notes[0]
    assert "over 2 studies (3 to 4 runs of a method)" in tables["compare-erase-paired"].notes[0]
    (row,), (record,) = tables["compare-erase-paired"].rows, tables["compare-erase-paired"].records
    at = [column.heading for column in tables["compare-erase-paired"].columns].index("adjacent kept ↑")
    assert row.entries[at].text.endswith(" (3 runs)")
    assert (record["runs"], record["test_forget_runs"], record["adjacent_runs"]) == (4, 4, 3)


def test_a_run_that_the_baseline_lacks_is_no_pair(tmp_path):
    """Otherwise a seed would be compared with nothing, or with another seed."""
    runs = [(0.1, 0.8, 0.9), (0.5, 0.8, 0.9)]
    one = study(tmp_path, "one", {"two-stage": [(0.0, 0.8, 0.9)], "pgd": runs})
    found = compare([one])
    (apart,) = found.difference.values()
    assert (apart["test_forget"].mean, apart["test_forget"].runs) == (0.1, 1)


def test_the_plane_of_retraining_is_around_the_mean_of_the_retrained_models(tmp_path):
    """The seeds of retraining are not those of the methods: comparing seed by seed would add chance."""
    retrained, runs = [(0.2, 0.8, 0.9), (0.4, 0.6, 0.9)], [(0.1, 0.9, 0.9), (0.3, 0.7, 0.9)]
    one = study(tmp_path, "one", {"retrain": retrained, "ft": runs})
    group = next(group for group in one.groups if group.method == "ft")
    (_, across), (_, up) = PLANES["retrain"]
    assert [across(one, group, seed) for seed in (0, 1)] == pytest.approx([0.1 - 0.3, 0.3 - 0.3])
    assert [up(one, group, seed) for seed in (0, 1)] == pytest.approx([0.9 - 0.7, 0.7 - 0.7])


def test_the_note_names_every_factor_of_tow_split():
    said = NOTES["retrain"].partition(" data.")[0].partition(" over ")[2].replace(" and ", ", ").split(", ")
    assert sorted(said) == sorted(f"{part} {subset}" for part, (subset,) in TOW_FACTORS["tow_split"])


def test_wrong_studies_are_refused(tmp_path):
    studies = two_studies(tmp_path)
    with pytest.raises(UsageError, match="given twice"):
        compare([studies[0], studies[0]])
    with pytest.raises(UsageError, match="no method 'scrub'"):
        compare(studies, baseline="scrub")
    shutil.copytree(studies[0].folder, tmp_path / "copy")
    with pytest.raises(UsageError, match="with seed 0: as two studies they would count twice"):
        compare([studies[0], read_results(tmp_path / "copy")])
    other = study(tmp_path, "three", {"original": [(1, 1, 1)]}, benchmark="other")
    with pytest.raises(UsageError, match=r"different benchmarks \(tiny, other\)"):
        compare([studies[0], other])


def test_the_command_prints_and_writes_the_tables(tmp_path):
    two_studies(tmp_path)
    folders = [str(tmp_path / name) for name in FORGET]
    done = CliRunner().invoke(app.app, ["compare", *folders, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "2 studies (4 runs of a method)" in " ".join(done.stdout.split())
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".md", ".tex", ".csv", ".png", ".svg"}
    told = json.loads(CliRunner().invoke(app.app, ["compare", *folders, "--json"]).stdout)
    assert told["studies"] == ["tiny forget=one", "tiny forget=two"]
    row = next(row for row in told["compare-erase-paired"] if row["method"] == "unweave")
    assert row["test_forget_mean"] == pytest.approx(0.09)
    assert "gradients_mean" not in row


def test_without_original_and_retrained_models_there_is_no_plane(tmp_path):
    study(tmp_path, "one", {"two-stage": [(0.0, 0.7, 0.9)], "unweave": [(0.0, 0.8, 0.9)]})
    done = CliRunner().invoke(app.app, ["compare", str(tmp_path / "one"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".md", ".tex", ".csv"}


def with_rows(results, **change):
    """Put changed copies of the rows of two-stage before the rows of a study."""
    table = pd.read_parquet(results.folder / "results.parquet")
    more = table[table.method == "two-stage"].assign(**change)
    pd.concat([more, table]).to_parquet(results.folder / "results.parquet")
    return read_results(results.folder)


def test_the_baseline_is_the_method_as_it_is(tmp_path):
    studies = [with_rows(one, profile="released", variant="alpha=0") for one in two_studies(tmp_path)]
    studies = [with_rows(one, profile="paper", variant="") for one in studies]
    for one in studies:  # the profile "official" is one that the method does not have
        table = pd.read_parquet(one.folder / "results.parquet")
        table.loc[(table.method == "two-stage") & (table.profile == "official"), "profile"] = "released"
        table.to_parquet(one.folder / "results.parquet")
    studies = [read_results(one.folder) for one in studies]
    for variants in (False, True):
        assert compare(studies, variants=variants).baseline[1:] == ("released", "")


def test_trials_are_said_to_be_trials(tmp_path):
    def tried(name, **options):
        results = study(tmp_path, name, {"original": [(1, 1, 1)], "two-stage": [(0, 1, 1)]})
        about = json.loads((results.folder / "study.json").read_text())
        about["options"] |= options
        (results.folder / "study.json").write_text(json.dumps(about))
        return read_results(results.folder)

    small, full = tried("small", small=True), tried("full")
    assert "A trial with --small" in grids(compare([small]))[0].notes[0]
    with pytest.raises(UsageError, match="Some of these studies are trials"):
        compare([small, full])


def test_methods_of_different_studies_are_not_shown_as_if_of_the_same(tmp_path):
    one = study(tmp_path, "one", {"ft": [(0.5, 0.7, 0.9)] * 2})
    two = study(tmp_path, "two", {"two-stage": [(0.0, 0.7, 0.9)] * 2})
    notes = " ".join(grids(compare([one, two]))[0].notes)
    assert "Not every method was run in the same studies" in notes
    assert notes.startswith("Mean over 1 study")  # a single study has no interval
    both = grids(compare(two_studies(tmp_path / "both")))[0]
    assert "Not every" not in " ".join(both.notes)


def test_what_is_not_finite_is_left_out(tmp_path):
    one = two_studies(tmp_path)[0]
    table = pd.read_parquet(one.folder / "results.parquet")
    far = table[table.subset == "forget"].assign(split="train", metric="loss_wasserstein", value=2.0)
    far.loc[(far.method == "unweave") & (far.seed == 1), "value"] = float("inf")
    pd.concat([table, far]).to_parquet(one.folder / "results.parquet")
    found = compare([read_results(one.folder)])
    group = next(group for group in found.names if group.method == "unweave")
    assert found.own[group]["losses"][:2] == (2.0, None)
    assert found.own[group]["losses"].runs == 1


def test_no_number_is_cut_on_a_narrow_terminal(tmp_path, monkeypatch):
    two_studies(tmp_path)
    shown = {}
    for width in (40, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        done = CliRunner().invoke(app.app, ["compare", *(str(tmp_path / name) for name in FORGET)])
        assert done.exit_code == 0, done.output
        shown[width] = [line.split() for line in done.stdout.splitlines() if line.startswith(("two-stage", "unweave"))]
    assert len(shown[40]) == 3
    assert shown[40] == shown[200]
