import json

from heedful.evaluation.metrics import EvaluationReport


def test_a_report_becomes_one_flat_json_object() -> None:
    report = EvaluationReport({"bleu": 31.5, "wer": 20.0}, {"bleu": "nrefs:1", "wer": "items:2"}, 2)
    expected = {
        "bleu": 31.5,
        "wer": 20.0,
        "signatures": {"bleu": "nrefs:1", "wer": "items:2"},
        "sentences": 2,
    }
    assert report.as_dict() == expected
    assert json.loads(json.dumps(report.as_dict(seconds=0.5))) == {**expected, "seconds": 0.5}
