"""Two machines learn from users of their own, meet classes nobody declared, merge, and forget one person to the last bit."""

import tempfile

import numpy as np

from sbmcl import StreamLearner

rng = np.random.default_rng(0)
places = {"cat": rng.normal(0, 3, 16), "dog": rng.normal(0, 3, 16), "eel": rng.normal(0, 3, 16)}


def photos(label: str, count: int) -> np.ndarray:
    return places[label] + rng.normal(0, 1, (count, 16))  # what your encoder makes of photos


phone = StreamLearner.from_encoder(None, "normal-gamma", dim=16)
tablet = phone.empty()  # the same prior, so that the two can merge
annas, bobs = photos("cat", 20), photos("dog", 20)
phone.partial_fit(annas, ["cat"] * 20, source="anna").partial_fit(bobs, ["dog"] * 20, source="bob")
eels, folder = photos("eel", 20), tempfile.mkdtemp()
tablet.partial_fit(eels, ["eel"] * 20, source="carl").save(folder)  # it travels as a folder
both = phone.merge(StreamLearner.load(folder))
print("together they know", both.classes_, "and are right about", both.score(photos("eel", 100), ["eel"] * 100))

both.forget(source="bob")
never = phone.empty().partial_fit(eels, ["eel"] * 20, source="carl").partial_fit(annas, ["cat"] * 20, source="anna")
print("without bob:", both.classes_, "- as if he had never been here:", both.digest() == never.digest())
