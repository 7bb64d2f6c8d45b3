"""Transformers: ``transformers:NAME[options]`` from the table of sizes, ``transformers:./FOLDER`` with its weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.files import file_digest
from pytest_ngraph.machine.imports import require
from pytest_ngraph.spec.cells import ModelRef
from pytest_ngraph.workloads.kinds.contract import AS_FILES, Built, Kind
from pytest_ngraph.workloads.kinds.transformers import generating, networks, options, saved
from pytest_ngraph.workloads.kinds.transformers.options import EAGER, FULL, LENGTHS, SDPA, Wanted
from pytest_ngraph.workloads.kinds.transformers.sizes import ARCHITECTURES, FAMILIES, IMAGES, TEXT, rough_macs
from pytest_ngraph.workloads.modules.constants import randomise_constants
from pytest_ngraph.workloads.modules.dynamo import without_dynamo

_TOKENS, _PIXELS = 128, 224


class Named(Kind):
    """``transformers:NAME``: an architecture by the sizes that it has in the table, with seeded random weights.

    Nothing is downloaded. ``transformers:NAME[layers=2]`` has other sizes.
    """

    form = "transformers:NAME"
    requires = ("torch", "transformers")
    extra = "transformers"
    made_by = ("torch", "transformers")
    has_files = False

    def parse(self, text: str, name: str, search: Sequence[Path]) -> str:
        """Return the name with those options that change something. Raise SpecError for others."""
        return options.normal(name)

    def spelled(self, text: str) -> str:
        """Return the reference with its options in one order, without those that change nothing."""
        front, _, name = text.partition(":")
        return f"{front}:{options.normal(name)}"

    def bare(self, text: str) -> str:
        """Return the reference without its options."""
        return options.split(text)[0]

    def names(self) -> Collection[str]:
        """Return the names of the table."""
        return ARCHITECTURES

    def check_name(self, model: ModelRef) -> None:
        """Raise SpecError where the table lacks the name."""
        super().check_name(ModelRef(model.text, model.scheme, options.split(model.locator)[0], model.kind))

    def axes(self, model: ModelRef) -> Mapping[str, int | None]:
        """Return the length of texts in tokens, or the side of images in pixels."""
        wanted = options.wanted(model.locator)
        if wanted.fed == TEXT:
            return {"sequence": min(_TOKENS, wanted.most_tokens)}
        return {"image_size": _PIXELS} if wanted.fed == IMAGES else {}

    def check_values(self, model: ModelRef, values: Mapping[str, int]) -> None:
        """Raise SpecError for a text that is longer than its positions, or an image that is smaller than a patch."""
        wanted = options.wanted(model.locator)
        refuse_sizes(model, wanted, values)

    def decodes(self, model: ModelRef) -> bool | None:
        """Return whether it is a language model that generates text. Raise SpecError for texts of several lengths."""
        return generating.decodes(model.text, options.wanted(model.locator))

    def rough_macs(self, model: ModelRef, values: Mapping[str, int]) -> float | None:
        """Return about how many multiply-accumulates a sample is."""
        return _rough_macs(options.wanted(model.locator), values)

    def build(self, model: ModelRef, axes: Mapping[str, int], seed: int) -> Built:
        """Build a network whose every layer counts. Raise Unsupported where its weights do not fit into memory."""
        require(model.text, self.extra, "transformers")
        wanted = options.wanted(model.locator)
        networks.refuse_too_large(model.text, wanted)
        module = networks.make(wanted, axes)
        randomise_constants(module)
        return Built(module, networks.inputs(wanted, axes, module.network.config))

    def preload(self) -> None:
        """Import the part of the library that all networks share, which takes a second or two."""
        if find_spec("transformers") is not None and find_spec("torch") is not None:
            with without_dynamo():
                networks.preload()


class Folder(Kind):
    """``transformers:./FOLDER``: what ``save_pretrained`` wrote, with its own weights, of safetensors only.

    It counts by the content of its files. Nothing in it is run.
    """

    form = "transformers:./FOLDER"
    plural = "folders of transformers"
    requires = ("torch", "transformers", "safetensors")
    extra = "transformers"
    made_by = ("torch", "transformers", "safetensors")
    travels = AS_FILES

    def parse(self, text: str, name: str, search: Sequence[Path]) -> str:
        """Return the path of the configuration in the folder, with those options that change something."""
        path, given = options.split(name, text)
        config = _find(text, path, search)
        chosen = _chosen(text, given, saved.read(text, config).family)
        saved.files(text, config)
        return options.written(str(config), chosen)

    def spelled(self, text: str) -> str:
        """Return the reference with its options in one order, without those that change nothing."""
        front, given = options.split(text)
        return options.written(front, {name: word for name, word in given.items() if word not in (FULL, SDPA)})

    def bare(self, text: str) -> str:
        """Return the reference without its options."""
        return options.split(text)[0]

    def place(self, model: ModelRef) -> str:
        """Return the path of the configuration."""
        return options.split(model.locator)[0]

    def moved(self, model: ModelRef, place: str) -> ModelRef:
        """Return the reference with another path."""
        return replace(model, locator=options.written(place, options.split(model.locator)[1]))

    def key_name(self, model: ModelRef) -> str:
        """Return the options: the files count by their content."""
        return options.written("", options.split(model.locator)[1])

    def files(self, model: ModelRef) -> list[Path]:
        """Return the configuration and the weights. Raise SpecError where they are not safetensors."""
        return saved.files(model.text, Path(self.place(model)))

    def axes(self, model: ModelRef) -> Mapping[str, int | None]:
        """Return the length of texts in tokens, or the side of images in pixels."""
        found, wanted = self._read(model)
        if wanted.fed == TEXT:
            return {"sequence": min(_TOKENS, wanted.most_tokens)}
        return {"image_size": found.image_size} if wanted.fed == IMAGES else {}

    def check_values(self, model: ModelRef, values: Mapping[str, int]) -> None:
        """Raise SpecError for a text that is longer than its positions, or other images than those it has them for."""
        found, wanted = self._read(model)
        if wanted.fed == IMAGES and values.get("image_size", found.image_size) != found.image_size:
            raise SpecError(
                f"model {model.text!r}: image_size is {values['image_size']} (allowed: {found.image_size}, which its "
                "weights are for)"
            )
        refuse_sizes(model, wanted, values)

    def decodes(self, model: ModelRef) -> bool | None:
        """Return whether it is a language model that generates text. Raise SpecError for texts of several lengths."""
        return generating.decodes(model.text, self._read(model)[1])

    def rough_macs(self, model: ModelRef, values: Mapping[str, int]) -> float | None:
        """Return about how many multiply-accumulates a sample is."""
        return _rough_macs(self._read(model)[1], values)

    def build(self, model: ModelRef, axes: Mapping[str, int], seed: int) -> Built:
        """Load a network. Raise SpecError where its files are not all of it."""
        require(model.text, self.extra, "transformers", "safetensors")
        found, wanted = self._read(model)
        config = Path(self.place(model))
        module = saved.load(model.text, config, found, options.split(model.locator)[1])
        files = {str(path): file_digest(path) for path in self.files(model)}
        return Built(module, networks.inputs(wanted, axes, module.network.config), files)

    def preload(self) -> None:
        """Import the part of the library that all networks share."""
        NAMED.preload()

    def _read(self, model: ModelRef) -> tuple[saved.Saved, Wanted]:
        found = saved.read(model.text, Path(self.place(model)))
        return found, found.wanted(options.split(model.locator)[1])


NAMED, FOLDER = Named(), Folder()


def _find(text: str, path: str, search: Sequence[Path]) -> Path:
    """Return the configuration in a folder that is looked for in others, in order."""
    given = Path(path).expanduser()
    candidates = [given] if given.is_absolute() else [folder / given for folder in search] or [given]
    for folder in candidates:
        if (folder / saved.CONFIG).is_file():
            return folder.resolve() / saved.CONFIG
    there = next((f"{folder} has no {saved.CONFIG}" for folder in candidates if folder.is_dir()), "")
    places = ", ".join(dict.fromkeys(str(folder.parent) for folder in candidates))
    name = given.name
    hint = f"; transformers:{name} is in the table of sizes" if name in ARCHITECTURES else ""
    raise SpecError(
        f"model {text!r}: {there or f'no folder {name!r} in {places}'} (expected one that save_pretrained wrote; "
        f"nothing is downloaded){hint}"
    )


def _chosen(text: str, given: Mapping[str, str], family: str) -> dict[str, str]:
    """Return the options of a folder that change something."""
    words = {"attention": (SDPA, EAGER), **({"mask": (FULL, LENGTHS)} if FAMILIES[family].fed == TEXT else {})}
    options.refuse_unknown(text, given, [*words])
    chosen = options.choices(text, given, words)
    return {name: word for name, word in chosen.items() if word != words[name][0]}


def _rough_macs(wanted: Wanted, values: Mapping[str, int]) -> float:
    return rough_macs(wanted.family, wanted.head, wanted.sizes, values)


def refuse_sizes(model: ModelRef, wanted: Wanted, values: Mapping[str, int]) -> None:
    """Raise SpecError for values of axes that a network cannot have."""
    length, size = values.get("sequence", 1), values.get("image_size")
    if wanted.fed == TEXT and length > wanted.most_tokens:
        # The weights of a folder are for the positions that it has.
        more = (
            f"; [positions={length + wanted.reserved}] gives it more"
            if options.split(model.locator)[0] in ARCHITECTURES
            else ""
        )
        raise SpecError(
            f"model {model.text!r}: sequence is {length} (allowed: at most {wanted.most_tokens}, as it has "
            f"{wanted.sizes['positions']} positions{more})"
        )
    if wanted.fed == IMAGES and size is not None and size < wanted.sizes["patch"]:
        raise SpecError(
            f"model {model.text!r}: image_size is {size} (allowed: {wanted.sizes['patch']} or more, the side of a "
            "patch)"
        )
