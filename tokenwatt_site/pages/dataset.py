"""What the site is to others: its name, address and licence; and JSON-LD of what it publishes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urljoin

from tokenwatt_site.canonical import JsonValue
from tokenwatt_site.configuration import Configuration
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.pages import cite, report, text
from tokenwatt_site.schema import Line, Model
from tokenwatt_site.trust.predicates import HttpsUrl
from tokenwatt_site.trust.registration import utc

NO_LICENCE = "no licence stated"


class Licence(Model):
    """Under which terms the data of the site may be used; `url` has them in full."""

    name: Line
    url: HttpsUrl


@dataclass(frozen=True, slots=True)
class Publisher:
    """What mkdocs.yml says of the site.

    `address` is where its pages begin, with a slash at its end; None: it does not say.
    """

    name: str
    address: str | None
    licence: Licence | None

    def url(self, path: str) -> str:
        """Return the address of a file of the site; without one of the site, from its root."""
        return urljoin(self.address, path) if self.address else path

    def licence_json(self) -> JsonValue:
        """Name and address of the licence; null: none is stated."""
        return None if self.licence is None else self.licence.to_json()


def of_report(configuration: Configuration, publisher: Publisher) -> dict[str, JsonValue]:
    """Describe a report as a schema.org Dataset: the run that leads it, and where its files are."""
    head, page = configuration.headline, f"reports/{configuration.id}.html"
    return _dataset(publisher, page) | {
        "name": configuration.title,
        "description": " ".join(part for part, _ in report.summary_parts(configuration)),
        "identifier": [configuration.id, f"sha256:{head.run_id}"],
        "creator": {"@type": "Organization", "name": head.signer or head.keyid},
        "dateModified": latest(configuration)[:10],
        "version": head.run_id[:12],
        "measurementTechnique": "SLO goodput of an LLM server under open-loop load, recomputed from"
        " signed evidence",
        "creditText": cite.plain(configuration, cite.address(publisher.address, head.run_id)),
        "variableMeasured": list(_variables(configuration)),
        "distribution": [
            _download(publisher.url(f"{cite.FOLDER}/{head.run_id}/run.json"), "application/json"),
            _download(publisher.url(f"api/v1/results/{configuration.id}.json"), "application/json"),
        ],
    }


def block_of_report(configuration: Configuration, publisher: Publisher) -> str:
    """Return `of_report` as `block` writes it."""
    return block(of_report(configuration, publisher))


def of_site(configurations: Sequence[Configuration], publisher: Publisher) -> dict[str, JsonValue]:
    """Describe everything that the site publishes as one Dataset."""
    modified = max((latest(c) for c in configurations), default="")
    return _dataset(publisher, "data.html") | {
        "name": f"{publisher.name}: measured LLM serving",
        "description": "Signed measurements of LLM servers: goodput, latency, power and accuracy,"
        f" recomputed from published evidence. {text.counted(len(configurations), 'result')}.",
        "creator": {"@type": "Organization", "name": publisher.name},
        **({"dateModified": modified[:10]} if modified else {}),
        "distribution": [
            _download(publisher.url("api/v1/catalogue.json"), "application/json"),
            _download(publisher.url("ranking.csv"), "text/csv"),
        ],
    }


def latest(configuration: Configuration) -> str:
    """When the newest of its runs ended, or the newest statement that counts was made; in UTC."""
    times = [utc(run.ended) for run in configuration.runs]
    times += [
        told.signed.said.made
        for run in configuration.runs
        for told in run.standing.told
        if told.why_not is None
    ]
    return max(times)


def block(value: JsonValue) -> str:
    """Write JSON-LD as an element of a page; no text in it can end the element.

    Browsers do not run it: its type is none of a script's. Escaped are the signs that HTML knows.
    """
    data = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/ld+json">{data}</script>'


def _dataset(publisher: Publisher, page: str) -> dict[str, JsonValue]:
    licence = publisher.licence
    return {
        "@context": "https://schema.org/",
        "@type": "Dataset",
        "url": publisher.url(page),
        "isAccessibleForFree": True,
        **({} if licence is None else {"license": licence.url}),
    }


def _download(url: str, kind: str) -> dict[str, JsonValue]:
    return {"@type": "DataDownload", "contentUrl": url, "encodingFormat": kind}


def _variables(configuration: Configuration) -> Iterator[dict[str, JsonValue]]:
    for claim in configuration.claims.metrics:
        if claim.value is not None:
            yield {
                "@type": "PropertyValue",
                "propertyID": claim.key,
                "name": claim.label,
                "unitText": METRICS[claim.key].unit,
                "value": claim.value,
                "description": text.sureness(claim),
            }
