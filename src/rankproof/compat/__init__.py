"""Other tools' interfaces over rankproof's values: a script changes one import.

    trec_eval.py      trec_eval 9's lines, byte for byte (`rankproof trec_eval`)
    pytrec_eval.py    RelevanceEvaluator
    ranx.py           Run, Qrels, evaluate, compare, fuse
    ir_measures.py    a provider, registered as ir_measures registers its own

Each gives the values of the tool that it stands for, which are those of one order of the ties. A
run is put into that order before it is measured, so that nothing is spent on the other orders;
`expected` and `range` are computed on request. trec_formulas.py and preferences.py hold measures
that only trec_eval has, dict_groups.py the fast way from dicts to ranks.
"""
