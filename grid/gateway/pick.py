"""What a pick gives: where the request goes, and by which document and rule."""

from typing import NamedTuple

from grid.model import AdmissionState, Kind, Picker


class Pick(NamedTuple):
    """One decision. Made when its document arrived, so it costs nothing to hand out, and nobody changes it.

    ``group`` and ``weight`` are None in the plain form; ``tier`` says how near the site is; ``rank`` is the place in
    the document. ``revision``, ``epoch`` and ``version`` name the document (None where it carries none).
    ``picker`` is what the document asks for (None: no policy), ``picker_used`` what chose.
    """

    kind: Kind
    name: str
    site: str
    cluster: str
    stable_id: str
    admission_state: AdmissionState
    tier: str | None
    fresh: bool
    rank: int | None
    group: int | None
    weight: int | None
    revision: str | None
    epoch: int | None
    version: int | None
    picker: Picker | None
    picker_used: Picker
