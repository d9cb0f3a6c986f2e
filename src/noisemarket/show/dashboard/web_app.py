"""The web application: pages, and the JSON that they read."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Body, FastAPI, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from noisemarket import __version__
from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.market.run_folder import fresh_path
from noisemarket.pricing import MECHANISMS, find_mechanism
from noisemarket.show.dashboard import form as forms
from noisemarket.show.dashboard import run_data, whatif
from noisemarket.show.dashboard.launcher import Launcher, TooManyRuns, WrongState
from noisemarket.show.dashboard.live import RunReader
from noisemarket.show.dashboard.run_store import RunStore, UnknownRun, is_elsewhere, ledger_of
from noisemarket.show.dashboard.security import AccessControl
from noisemarket.show.style import colour_of, name_of

PresetName = Literal["market", "paper", "fars"]
STATIC = Path(__file__).parent / "static"
MOST_ROWS = 500
MOST_COMPARED = 20
AT_ONCE = 2
"""Answers of "what if" that are computed at a time; the others wait."""


class Problem(BaseModel):
    """Why a request was refused, in a sentence; of a form, also what is wrong with each field."""

    problem: str
    fields: dict[str, str] = {}


class ChangedMarket(BaseModel):
    """A market to ask about: a preset, and the settings that differ from it."""

    model_config = ConfigDict(extra="forbid")

    preset: PresetName = "market"
    settings: dict[str, int | float | str] = Field({}, max_length=50)


class RunOrder(ChangedMarket):
    """A run to start."""

    data: str = Field("", max_length=300, description="data of one's own, by its name")
    command: Literal["run", "compare"] = "run"
    name: str = Field("", max_length=100, description="name of the run's folder; empty: by time")
    draws: int = Field(1, ge=0, le=20, description="draws of the noise that are compared; 0: none")


class Started(BaseModel):
    """The run that a request was about; whether it has a folder yet."""

    name: str
    begun: bool = True


_STATUS = (
    (UnknownRun, 404),
    (TooManyRuns, 429),
    (WrongState, 409),
    (BadInput, 422),
    (forms.RefusedForm, 422),
    (NoisemarketError, 409),
)
_REFUSED: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem} for code in (401, 403, 404, 409, 422, 429)
}
_CHANGES = _REFUSED | {code: {"model": Problem} for code in (400, 411, 413, 415)}
Search = Annotated[str, Query(max_length=100)]
StateName = Annotated[str, Query(max_length=20)]
DataName = Annotated[str, Query(max_length=300)]
RunName = Annotated[str, InPath(min_length=1, max_length=100)]


def web_app(store: RunStore, *, token: str | None = None, most_runs: int = 2) -> ASGIApp:
    """The application that serves a folder of runs."""
    return AccessControl(api(store, most_runs), token)


def api(store: RunStore, most_runs: int = 2) -> FastAPI:
    """The application without its access control, for its OpenAPI schema."""
    launcher = Launcher(store, most_runs)
    thinking = asyncio.Semaphore(AT_ONCE)

    app = FastAPI(
        title="noisemarket dashboard", version=__version__, docs_url=None, redoc_url=None,
        openapi_url="/api/openapi.json",
    )  # fmt: skip
    _explain_problems(app)

    @app.get("/api/about")
    def about() -> dict[str, Any]:
        """What this server is: version, folder, mechanisms."""
        return {
            "version": __version__,
            "folder": store.root.name,
            "most_runs": most_runs,
            "mechanisms": [
                {"mechanism": name, "name": name_of(name), "colour": colour_of(name),
                 "knows": find_mechanism(name).knows}
                for name in MECHANISMS
            ],
        }  # fmt: skip

    @app.get("/api/runs")
    def runs() -> list[dict[str, Any]]:
        """All runs, the latest first."""
        return store.listing()

    @app.get("/api/form", responses=_REFUSED)
    def form(preset: PresetName = "market", data: DataName = "") -> dict[str, Any]:
        """The settings of a run, explained, with the values of a preset."""
        found = forms.form(preset, forms.words_of(store.data, data))
        return found | {"presets": forms.DATA, "own_data": [*store.data]}

    @app.post("/api/runs", status_code=201, responses=_CHANGES)
    def start(order: Annotated[RunOrder, Body()]) -> Started:
        """Start a run: an ordinary command in a process of its own."""
        name, data = order.name.strip(), forms.words_of(store.data, order.data)
        wrong = forms.all_wrong(order.preset, order.settings, data)
        try:
            if name:
                store.new_path(name)
        except BadInput as problem:
            wrong["name"] = forms.said_of(problem)
        if wrong:
            raise forms.RefusedForm(wrong)
        what = "compare" if order.command == "compare" else order.settings.get("mechanism", "run")
        name = name or fresh_path(store.root, f"{order.data or order.preset}-{what}").name
        words = forms.checked_settings(order.preset, order.settings, data)
        given = ["--preset", order.preset, *(w for word in words for w in ("--set", word))]
        if order.command == "run":
            given += ["--draws", str(order.draws)] if order.draws else ["--no-baselines"]
        else:
            given.append("--game-only")
        try:
            return Started(name=name, begun=launcher.start(name, order.command, given))
        except BadInput as problem:
            raise forms.refused(problem) from None

    @app.get("/api/runs/{run}/begun", responses=_REFUSED)
    def begun(run: RunName) -> Started:
        """Wait a while for the folder of a run that was started."""
        try:
            return Started(name=run, begun=launcher.begun(run))
        except BadInput as problem:
            raise forms.refused(problem) from None

    @app.get("/api/runs/{run}", responses=_REFUSED)
    def overview(run: RunName) -> dict[str, Any]:
        """How a run stands."""
        ledger = ledger_of(store, run) is not None or is_elsewhere(store, run)
        return store.overview(run) | {"ledger": ledger}

    @app.post("/api/runs/{run}/stop", status_code=202, responses=_CHANGES)
    def stop(run: RunName) -> Started:
        """Ask a run to stop; it keeps what is finished."""
        launcher.stop(run)
        return Started(name=run)

    @app.post("/api/runs/{run}/resume", status_code=202, responses=_CHANGES)
    def resume(run: RunName) -> Started:
        """Go on with a run that was stopped."""
        launcher.resume(run)
        return Started(name=run)

    @app.get("/api/runs/{run}/state", responses=_REFUSED)
    def state(run: RunName) -> dict[str, Any]:
        """How far a run has come; pages ask again and again."""
        reader: RunReader = store.answers.get(("live", run), None, lambda: RunReader(store, run))
        return reader.state()

    @app.get("/api/runs/{run}/curves", responses=_REFUSED)
    def curves(run: RunName) -> dict[str, Any]:
        """How the negotiation went, with the exact equilibrium where a game is played."""
        return run_data.curves(store, run)

    @app.get("/api/runs/{run}/study", responses=_REFUSED)
    def study(run: RunName) -> dict[str, Any]:
        """What a season or a reproduction came to."""
        return run_data.study(store, run)

    _contracts(app, store)

    @app.get("/api/compare", responses=_REFUSED)
    def compare(run: Annotated[list[str], Query(min_length=1)]) -> dict[str, Any]:
        """Runs side by side, and what else than the mechanism they differ in."""
        if len(run) > MOST_COMPARED:
            raise BadInput("number of runs", len(run), f"choose at most {MOST_COMPARED}.")
        rows = run_data.comparison(store, run)
        return {"rows": rows, "differ": run_data.differences(rows)}

    @app.get("/api/whatif/sliders")
    def sliders(preset: PresetName = "market") -> dict[str, Any]:
        """What can be dragged, and where it stands in a preset."""
        return {"sliders": whatif.sliders(preset)}

    @app.post("/api/whatif", responses=_CHANGES)
    async def what_if(question: Annotated[ChangedMarket, Body()]) -> dict[str, Any]:
        """The clock, the equilibrium and the frontier of a changed market."""
        async with thinking:
            return await asyncio.to_thread(whatif.answer_of, question.preset, question.settings)

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _contracts(app: FastAPI, store: RunStore) -> None:
    @app.get("/api/runs/{run}/contracts", responses=_REFUSED)
    def contracts(
        run: RunName,
        sort: run_data.Column = "owner",
        descending: bool = False,
        search: Search = "",
        state: StateName = "",
        sold: bool = False,
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100,
    ) -> dict[str, Any]:
        """The contracts of a run, sorted and filtered, a page of them."""
        rows = run_data.contract_rows(store, run)
        found = run_data.selected(
            rows, sort=sort, descending=descending, search=search, state=state, sold=sold
        )
        states = sorted({str(row["state"]) for row in rows})
        page = found[offset : offset + limit]
        return {"total": len(rows), "found": len(found), "states": states, "rows": page}

    @app.get("/api/runs/{run}/contracts.csv", responses=_REFUSED)
    def download(run: RunName, search: Search = "", state: StateName = "", sold: bool = False
                 ) -> Response:  # fmt: skip
        """The same as a CSV file."""
        rows = run_data.contract_rows(store, run)
        found = run_data.selected(rows, search=search, state=state, sold=sold)
        name = re.sub(r"[^A-Za-z0-9._-]", "_", run)
        headers = {"content-disposition": f'attachment; filename="{name}-contracts.csv"'}
        return Response(run_data.rows_csv(found), media_type="text/csv", headers=headers)

    @app.get("/api/runs/{run}/owner", responses=_REFUSED)
    def owner(run: RunName, name: Annotated[str, Query(max_length=300)]) -> dict[str, Any]:
        """All that is known of one owner."""
        return run_data.all_of_owner(store, run, name)

    @app.get("/api/runs/{run}/ledger", responses=_REFUSED)
    def ledger(run: RunName) -> dict[str, Any]:
        """Whether the ledger of a run is sound."""
        return run_data.verification(store, run)


def _explain_problems(app: FastAPI) -> None:
    """Every refusal is one sentence in the same form."""

    @app.exception_handler(NoisemarketError)
    def refused(_request: Request, problem: NoisemarketError) -> JSONResponse:
        status = next(status for kind, status in _STATUS if isinstance(problem, kind))
        fields = {"fields": problem.fields} if isinstance(problem, forms.RefusedForm) else {}
        return JSONResponse({"problem": str(problem), **fields}, status)

    @app.exception_handler(RequestValidationError)
    def invalid(_request: Request, problem: RequestValidationError) -> JSONResponse:
        first = problem.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:]) or "request"
        return JSONResponse({"problem": f"{field}: {first['msg']}."}, 422)

    @app.exception_handler(HTTPException)
    def other(_request: Request, problem: HTTPException) -> JSONResponse:
        return JSONResponse({"problem": f"{problem.detail}."}, problem.status_code,
                            headers=problem.headers)  # fmt: skip
