"""Guardrails: what a rule may say, and when it fails."""

from __future__ import annotations

from dataclasses import replace

import pytest
from toy_embedder import Toy

from rankproof.diagnostics import (
    NamesDiagnosis,
    NoiseDiagnosis,
    check_rules,
    diagnose_names,
    diagnose_noise,
    parse_rule,
)
from rankproof.diagnostics.rules import Kind
from rankproof.foundation.errors import InputError


@pytest.fixture(scope="module")
def names() -> NamesDiagnosis:
    return diagnose_names(Toy(), queries=8, runs=1)


@pytest.fixture(scope="module")
def noise() -> NoiseDiagnosis:
    return diagnose_noise(Toy(), queries=8, runs=1)


def test_extra_spaces_in_a_rule_are_ignored() -> None:
    rule = parse_rule("  name drop>30 % under  strip_diacritics ", "names")
    assert (rule.quantity, rule.sign, rule.threshold, rule.percent, rule.scope) == (
        *("name drop", ">", 30.0, True),
        "strip_diacritics",
    )
    assert parse_rule("cosine < .6 at level 3", "noise").scope == 3


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("", "names", "is not understood; write it like 'name drop > 30% under strip_diacritics'"),
        ("name drop = 3% under layout", "names", "is not understood"),
        ("name drop > many under layout", "names", "is not understood"),
        ("nam drop > 3% under layout", "names", "did you mean 'name drop'?"),
        ("name drop > 3%", "names", "names no ablation"),
        ("name drop > 3% under diacritics_strip", "names", "neither an ablation nor a family"),
        ("name drop > 3% under strip_diacritic", "names", "did you mean 'strip_diacritics'?"),
        ("name margin < 3%", "names", "name margin is not a percentage; leave out the % sign"),
        ("name/topic ratio < 1 under layout", "names", "the ratio is that of the base"),
        ("cosine drop > 3%", "noise", "names no level"),
        ("cosine drop > 3% at level 5", "noise", "names no level"),
        ("name drop > 3% at level 4", "noise", "'name drop' is not a figure of noise"),
        ("passage cosine < 5% at level 1", "noise", "is not a percentage"),
    ],
)
def test_a_rule_that_cannot_be_parsed_is_refused_with_a_remedy(
    text: str, kind: Kind, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        parse_rule(text, kind)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "failed", "value"),
    [
        ("name drop > 30% under hard_name_mask", True, 100.0),
        ("name drop > 100% under hard_name_mask", False, 100.0),
        ("name drop >= 100% under hard_name_mask", True, 100.0),
        ("name drop < 100% under hard_name_mask", False, 100.0),
        ("name drop <= 100% under hard_name_mask", True, 100.0),
        ("name margin <= 0 under hard_name_mask", True, 0.0),
        ("confused > 99% under identity", True, 100.0),
        ("confused > 0.99 under hard_name_mask", True, 1.0),
        ("name drop > 100% under identity", False, 100.0),
    ],
)
def test_rules_hold_against_a_diagnosis_of_names(
    names: NamesDiagnosis, text: str, failed: bool, value: float
) -> None:
    (verdict,) = check_rules([parse_rule(text, "names")], names)
    assert verdict.failed == failed
    assert verdict.value == value
    assert verdict.sentence.startswith("failed" if failed else "passed")


def test_every_quantity_of_names_can_have_a_rule(names: NamesDiagnosis) -> None:
    base, initials = names.base, names["initials_form"]
    for text, value in (
        ("topic drop > 1% under initials_form", -initials.percent["topic"].mean),
        ("both drop > 1 under initials_form", -initials.change["both"].mean),
        ("topic margin > 1", base.margin["topic"].mean),
        ("name/topic ratio > 1", names.ratio.mean),
        ("confused > 1", base.confused.mean),
        ("retrieval drop > 1 under initials_form", -initials.retrieval_change["nDCG@10"].mean),
    ):
        (verdict,) = check_rules([parse_rule(text, "names")], names)
        assert verdict.value == pytest.approx(value), text


def test_a_rule_on_a_family_is_checked_on_its_worst_ablation(names: NamesDiagnosis) -> None:
    (verdict,) = check_rules([parse_rule("name drop > 5% under formatting", "names")], names)
    drops = {r.ablation: -r.percent["name"].mean for r in names.rows if r.family == "formatting"}
    worst = max(drops, key=lambda name: drops[name])
    assert verdict.value == pytest.approx(drops[worst])
    assert verdict.where == f"under {worst}"


def test_a_rule_on_an_ablation_without_effect_fails(names: NamesDiagnosis) -> None:
    """Names without accents passed every rule about accents."""
    rows = tuple(
        replace(row, changed=0) if row.ablation == "strip_diacritics" else row for row in names.rows
    )
    plain = replace(names, rows=rows)
    rules = ["name drop > 99% under strip_diacritics", "name drop > 9999% under formatting"]
    alone, family = check_rules([parse_rule(text, "names") for text in rules], plain)
    assert alone.failed
    assert alone.sentence == (
        "failed: name drop > 99% under strip_diacritics: there is no figure under "
        "strip_diacritics: it changes none of these texts"
    )
    assert not family.failed
    assert "strip_diacritics" not in family.where


def test_rules_hold_against_a_diagnosis_of_noise(noise: NoiseDiagnosis) -> None:
    high = noise.at(4)
    for text, value in (
        ("cosine drop > 40% at level 4", -high.percent["clean"].mean),
        ("cosine drop > 0.4 at level 4", -high.drop["clean"].mean),
        ("passage drop > 0.4 at level 4", -high.drop["passage"].mean),
        ("cosine < 0.4 at 4", high.cosine["clean"].mean),
        ("passage cosine < 0.4 at level 4", high.cosine["passage"].mean),
    ):
        (verdict,) = check_rules([parse_rule(text, "noise")], noise)
        assert verdict.value == pytest.approx(value), text


def test_a_rule_on_a_quantity_that_was_not_measured_fails(noise: NoiseDiagnosis) -> None:
    for text in ("recovered < 50% at level 4", "retrieval drop > 1 at level 4"):
        (verdict,) = check_rules([parse_rule(text, "noise")], noise)
        assert verdict.failed
        assert "there is no figure" in verdict.sentence
