"""Files to begin from, a few for each target, and words that are worth putting in."""

from __future__ import annotations

_RUN = b"""q1 Q0 d1 1 2.5 tag
q1\tQ0\ta-document-of-many-bytes\t2\t-1e-3\ttag\r
# a comment

  q2 Q0 \xc3\xa9t\xc3\xa9 1 inf tag
q1 Q0 d3 3 12.50386047363281 tag"""
_QRELS = b"""q1 0 d1 2
q1 0 a-document-of-many-bytes -1
q2 0 d1 0
q2 0 d2 1
"""
_CSV = b'query_id,doc_id,rank,score\nq1,d1,1,2.5\nq1,"a, b",2,-1e-3\n\n"q ""2""",007,1,1e300\n'
_TSV = b'query-id\tcorpus-id\tscore\nq1\td1\t2\nq2\t"d"\t0\nq2\td3\t-1\n'
_JSON = b'{"q1": {"d1": 2.5, "\\u00e9": -1e-3}, "q2": {}, "q3": {"d1": 1}}'
_JSONL = b'{"query": "q1", "doc": "d1", "score": 2}\n\n{"doc": "d2", "query": 7, "score": -1}\n'
_FIVE = b"q1 Q0 d1 1 2.5\nq1 Q0 d2 2 1e3\n"
_SEVEN = b"q1 Q0 d1 1 2.5 a tag\nq1 Q0 d2 2 1e3 a\nq2 Q0 d2 1 0 a tag of caf\xe9s\n"
_THREE = b"q1 d1 2.5\nq1\td2\t-1\r\nq2 d1 0"
_MARCO = b"q1\td1\t1\nq1\td2\t2\nq2\td1\t1\n"
_HITS = b"""{"q1": [["d1", 0.5], ["d2", 9007199254740993]], "q3": {"d": 1}, "q4": [],
"q2": [{"_id": "d1", "score": 1}, {"metadata": {"id": 7}, "score": 2}]}"""
_RANKED = b'{"q1": ["d1", 7], "q2": [["d1", null]], "q3": [{"id": "d"}]}'
_RECORDS = b'[{"qid": 1, "docno": "d1", "score": 0.5}, {"qid": 1, "docno": "d2", "score": 1}]'
_MTEB = b'{"mteb_model_meta": {"name": "m"}, "default": {"test": {"q1": {"d1": 0.5}}, "dev": {}}}'
_GRADES = b'{"q1": {"d1": 2, "d2": true}, "q2": {"d1": -1, "d3": 0}}'
_BEIR = (
    b'{"_id": "d1", "title": "A", "text": "words"}\n{"_id": "d2", "text": "", "source": 3}\n\x00\n'
    b'{"_id": "q1", "text": "what?"}\n\x00\nquery-id\tcorpus-id\tscore\nq1\td1\t2\n'
)

SEEDS: dict[str, list[bytes]] = {
    "trec-run": [_RUN, b"\xef\xbb\xbf" + _RUN.replace(b"\n", b"\r\n"), _FIVE, _SEVEN],
    "trec-qrels": [_QRELS],
    "plain-run": [_THREE],
    "msmarco-run": [_MARCO],
    "csv-run": [_CSV, _CSV.replace(b"\n", b"\r\n")],
    "tsv-qrels": [_TSV],
    "json-run": [_JSON, _HITS, _RANKED, _RECORDS],
    "json-qrels": [_GRADES, _HITS],
    "mteb-run": [_MTEB],
    "jsonl-run": [_JSONL],
    "jsonl-qrels": [_JSONL],
    "any-run": [_RUN, _CSV, _TSV, _JSON, _JSONL, _FIVE, _SEVEN, _THREE, _MARCO, _HITS, _MTEB],
    "any-qrels": [_QRELS, _TSV, _THREE, _GRADES],
    "beir": [_BEIR],
}

WORDS = [
    *(b"0", b"-0", b"+1", b".5", b"1.", b"1e400", b"1e-400", b"nan", b"-inf", b"Infinity"),
    *(b"9007199254740993", b"0.30000000000000004", b"1e", b"1e+", b"1_0", b"0x1p3", b"5e-324"),
    *(b"00000000000000000000000001", b"123456789012345678901234567890", b"1" * 70),
    *(b" ", b"\t", b"\r", b"\n", b"\r\n", b"\x0b", b"\x0c", b"\x85", b"\xe2\x80\xa8", b"\xc2\xa0"),
    *(b"\x00", b"\x1f", b"\x7f", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
    *(b'"', b'""', b",", b"#", b"{", b"}", b"[", b"]", b"{}", b"[]", b"null", b"true", b":"),
    *(b'"\\ud800"', b"\\u0000", b"\\", b"query", b"doc", b"score", b"grade", b"_id", b"text"),
    *("日本語文書".encode(), "é".encode() * 6, b"x" * 11, b"x" * 12, b"x" * 13, b"x" * 200),
    *(b"\x1f\x8b", b"BZh91AY&SY", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"PAR1", b"ARROW1"),
]
