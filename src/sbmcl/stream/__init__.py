"""The learner one deploys: learns from a live stream, predicts, merges, forgets, and survives a power cut.

It may know trained runs and beliefs; how an episode is drawn or a network is trained it does not know. The mathematics is
that of `sbmcl.beliefs`; what is added here are labels, sources, exact sums and files.
"""

from sbmcl.stream.learner import Distribution, StreamLearner

__all__ = ["Distribution", "StreamLearner"]
