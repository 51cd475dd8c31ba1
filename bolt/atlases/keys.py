"""Keys of `atlas.yaml`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from bolt.config import Keys


class AtlasImage(Keys):
    """An image of an atlas."""

    file: str | None = Field(None, description="the publisher's name of the image file")
    url: str | None = Field(None, description="where the publisher offers the image")
    sha256: list[str] = Field([], description="accepted checksums of the image; empty: not verified (your own atlas)")
    templateflow: str | None = Field(None, description="path of the same image in a TemplateFlow home")
    templateflow_md5: list[str] = Field([], description="checksums of TemplateFlow's copy, if its bytes differ")


class AtlasFile(AtlasImage):
    """Keys of `atlas.yaml`; those of `AtlasImage` describe the image of an atlas that has only one."""

    name: str
    kind: Literal["image", "maps", "spheres"] = Field(
        "image", description="image: labels; maps: a 4D image with weights for each ROI; spheres: drawn around x, y, z"
    )
    spaces: list[str] = Field([], description="spaces in which the image is valid (TemplateFlow's names)")
    images: dict[str, AtlasImage] = Field({}, description="the image for each space, if there are several")
    description: str = ""
    labels: str | None = Field(None, description="the publisher's table of labels; null: labels.tsv in the folder")
    labels_url: str | None = Field(None, description="where the publisher offers that table")
    radius_mm: float | None = Field(None, gt=0, description="radius of the spheres")
    source: str = ""
    licence: str = ""
    citation: str = ""
    doi: str = ""

    @model_validator(mode="before")
    @classmethod
    def _spaces_of_images(cls, keys: Any) -> Any:
        if isinstance(keys, dict) and isinstance(keys.get("images"), dict) and "spaces" not in keys:
            return keys | {"spaces": list(keys["images"])}
        return keys

    @model_validator(mode="after")
    def _one_form(self) -> AtlasFile:
        if not self.spaces:
            raise ValueError("key 'spaces' is missing (or 'images', with an image for each space)")
        if self.images and self.spaces != list(self.images):
            raise ValueError("remove 'spaces': the keys of 'images' name them")
        if self.images and any(self.model_dump(include=set(AtlasImage.model_fields)).values()):
            raise ValueError("describe all files under 'images', none beside it")
        return self

    @property
    def by_space(self) -> dict[str, AtlasImage]:
        """Return the image for each space; empty for spheres, which are drawn."""
        if self.images or self.kind == "spheres":
            return self.images
        only = AtlasImage(**self.model_dump(include=set(AtlasImage.model_fields)))
        return dict.fromkeys(self.spaces, only)

    def image_in(self, space: str | None = None) -> AtlasImage:
        """Return the image for a space; by default, or if there is none for that space, the first image."""
        images = self.by_space
        return images[space] if space in images else next(iter(images.values()))
