"""Other tools' interfaces over rankproof's values, so that a script changes only one import.

    trec_eval.py      trec_eval 9's output, byte for byte (`rankproof trec_eval`)
    pytrec_eval.py    RelevanceEvaluator
    ranx.py           Run, Qrels, evaluate, compare, fuse
    ir_measures.py    a provider, registered as ir_measures registers its own

Each returns the values of the tool it replaces, which are those of a single tie-break. A run is put
into that order before it is measured, so no time goes into other orders; `expected` and `range` are
computed on request. trec_formulas.py and preferences.py hold measures that only trec_eval has;
dict_groups.py is the fast way from dicts to ranks.
"""
