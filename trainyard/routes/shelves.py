"""Datasets, base models, nodes, health."""

from __future__ import annotations

from pathlib import Path

from trainyard.calls import Call, Pages, call, pages, segment
from trainyard.results import Dataset, Json, Model, Node


class ShelfRoutes:
    @call
    def push_dataset(self, file: Path | str, name: str | None = None) -> Call[Dataset]:
        """Uploads a JSONL, JSON or CSV file (gzip allowed); streamed, any size.

        >>> client.push_dataset("rows.jsonl", name="support tickets")["n_rows"]
        20
        """
        return Call("POST", "/datasets", form={"name": name} if name else {}, file=Path(file))

    @pages
    def datasets(self) -> Pages[Dataset]:
        """Every dataset, newest first.

        >>> [dataset["name"] for dataset in client.datasets()]
        ['chat.jsonl']
        """
        return Pages("/datasets")

    @call
    def dataset(self, dataset_id: str) -> Call[Dataset]:
        """A dataset, with the report of its rows.

        >>> client.dataset(dataset_id)["format"]
        'messages'
        """
        return Call("GET", f"/datasets/{segment(dataset_id)}")

    @call
    def dataset_rows(self, dataset_id: str, after: int = 0, limit: int = 20) -> Call[Json]:
        """Some rows of a dataset: `data`, and where the next page begins.

        >>> len(client.dataset_rows(dataset_id, limit=3)["data"])
        3
        """
        return Call("GET", f"/datasets/{segment(dataset_id)}/rows", {"after": after, "limit": limit})

    @call
    def delete_dataset(self, dataset_id: str) -> Call[Json]:
        """Deletes a dataset that no unfinished job needs.

        >>> _ = client.delete_dataset(client.push_dataset("rows.jsonl")["id"])
        """
        return Call("DELETE", f"/datasets/{segment(dataset_id)}")

    @call
    def add_model(self, name: str, source: str, revision: str | None = None) -> Call[Model]:
        """Registers a base model: a folder on the nodes, or a hub id.

        >>> client.add_model("smollm2", "HuggingFaceTB/SmolLM2-135M")["name"]
        'smollm2'
        """
        return Call("POST", "/models", json={"name": name, "source": source, "revision": revision})

    @pages
    def models(self) -> Pages[Model]:
        """Every base model.

        >>> "tiny" in [model["name"] for model in client.models()]
        True
        """
        return Pages("/models")

    @pages
    def nodes(self) -> Pages[Node]:
        """Every machine that runs jobs, with its devices.

        >>> [(node["name"], node["state"]) for node in client.nodes()]
        [('n1', 'ready')]
        """
        return Pages("/nodes")

    @call
    def drain(self, node: str, *, stop: bool = False) -> Call[Node]:
        """No further work for the node; with `stop` its runs leave at a checkpoint and are queued again.

        >>> client.drain("n1")["hold"]
        'cordoned'
        """
        return Call("POST", f"/nodes/{segment(node)}/drain", {"stop": stop})

    @call
    def cordon(self, node: str) -> Call[Node]:
        """No further work for the node; what runs there goes on.

        >>> client.cordon("n1")["hold"]
        'cordoned'
        """
        return Call("POST", f"/nodes/{segment(node)}/cordon")

    @call
    def uncordon(self, node: str) -> Call[Node]:
        """Work for the node again.

        >>> client.uncordon("n1")["state"]
        'ready'
        """
        return Call("POST", f"/nodes/{segment(node)}/uncordon")

    @call
    def health(self) -> Call[Json]:
        """Whether the service is ready: its database answers and its tables are current.

        >>> client.health()["status"]
        'ok'
        """
        return Call("GET", "/health/ready")

    @call
    def job_schema(self) -> Call[Json]:
        """The JSON schema of a job body, for editors and checks.

        >>> "training" in client.job_schema()["properties"]
        True
        """
        return Call("GET", "/schemas/job")
