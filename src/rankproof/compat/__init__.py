"""Other tools' interfaces over our figures: a script changes one import.

    trec_eval.py      trec_eval 9's lines, byte for byte (`rankproof trec_eval`)
    pytrec_eval.py    RelevanceEvaluator
    ranx.py           Run, Qrels, evaluate, compare, fuse
    ir_measures.py    a provider, registered as ir_measures registers its own

Each gives the figures of the tool that it stands for, which are those of one order of the ties. A
run is put into that order before it is measured (ties.py), so that nothing is spent on the others;
`expected` and `range` are there on request.
"""
