"""Boosted trees: statistics of layers, the splits that follow from them, ensembles that grow, quantiles of features."""
