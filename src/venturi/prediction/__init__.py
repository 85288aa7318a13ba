"""Prediction: whether a testbed sustains a load that was not measured, with latencies and the greatest rate.

It has three layers: bounds of the resources (:mod:`venturi.prediction.resources`), queueing theory
(:mod:`venturi.prediction.stations`), and replays in the simulator (:mod:`venturi.prediction.replay`). Calibration and
its errors are in :mod:`venturi.calibration`. Runs near the limit confirm a prediction (:mod:`venturi.prediction.confirm`).
Printing is in :mod:`venturi.cli`. Models that were fitted to another run are not part of it. Read :func:`predict_load`
first.
"""

from venturi.prediction.predict import predict_load
from venturi.prediction.rate import RequestedRate
from venturi.prediction.request import LoadRequest
from venturi.prediction.result import LoadPrediction

__all__ = ["LoadPrediction", "LoadRequest", "RequestedRate", "predict_load"]
