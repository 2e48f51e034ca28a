"""Numbers of the service, in Prometheus' form; none of them is about a text."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The counters of one service, in a registry of its own."""

    def __init__(self, replica: str | None = None) -> None:
        """Start all counters at zero; with a replica, its name is a label of each."""
        self._replica = replica
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, label: str) -> Counter:
            return Counter(f"heedful_{name}", text, (label,), registry=self.registry)

        self.characters = counter("characters", "Characters of texts to translate, by languages.", "pair")
        self.key_characters = counter(
            "key_characters", "Translated characters, by a hash of the name of the API key.", "key"
        )
        self.sentences = counter(
            "sentences", "Sentences to translate, by the languages of the model.", "pair"
        )
        self.cached_sentences = counter(
            "cached_sentences", "Sentences whose translation was in the cache.", "pair"
        )
        self.batch_sentences = Histogram(
            "heedful_batch_sentences", "Sentences of a batch.", buckets=_SIZES, registry=self.registry
        )
        self.seconds = Histogram(
            "heedful_http_request_duration_seconds",
            "Time from a request's head to the end of its answer.",
            ("endpoint", "status"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "heedful_http_requests_in_flight", "Requests that are being answered.", registry=self.registry
        )

    def watch(self, waiting_sentences: Callable[[], int], admitted_characters: Callable[[], int]) -> None:
        """Read two numbers at each request for all of them."""
        for name, text, read in (
            ("waiting_sentences", "Sentences in the queues.", waiting_sentences),
            ("admitted_characters", "Characters of unanswered requests.", admitted_characters),
        ):
            Gauge(f"heedful_{name}", text, registry=self.registry).set_function(read)

    def text(self) -> bytes:
        """Return all numbers as Prometheus reads them."""
        if self._replica is None:
            return generate_latest(self.registry)
        labelled = CollectorRegistry()
        labelled.register(_Labelled(self.registry, {"replica": self._replica}))
        return generate_latest(labelled)


class _Labelled:
    """The numbers of a registry with more labels."""

    def __init__(self, registry: CollectorRegistry, labels: Mapping[str, str]) -> None:
        self._registry, self._labels = registry, labels

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [
                sample._replace(labels={**sample.labels, **self._labels}) for sample in metric.samples
            ]
            yield metric
