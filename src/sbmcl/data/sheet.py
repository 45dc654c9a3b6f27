"""A picture of pictures: some classes of a store, or of an endless source, a row each."""

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from sbmcl.data.store import Store


def contact_sheet(store: Store, rows: int = 12, columns: int = 20, scale: int = 2) -> Image.Image:
    """Classes spread evenly through the store, the first examples of each."""
    if len(store.item_shape) != 3:
        raise ValueError(f"{store.name} holds vectors, of which there is no picture to make")
    classes = torch.linspace(0, len(store.class_names) - 1, min(rows, len(store.class_names))).long().tolist()
    return sheet_of([store.items[int(store.starts[c]) : int(store.starts[c + 1])][:columns] for c in classes], scale)


def sheet_of(rows: list[UInt8[Tensor, "n c h w"]], scale: int = 2) -> Image.Image:
    """Pictures row by row on white."""
    channels, height, width = rows[0].shape[1:]
    sheet = torch.full((channels, len(rows) * height, max(map(len, rows)) * width), 255, dtype=torch.uint8)
    for i, row in enumerate(rows):
        sheet[:, i * height : (i + 1) * height, : len(row) * width] = row.permute(1, 2, 0, 3).flatten(2)
    pixels = np.ascontiguousarray(sheet.permute(1, 2, 0).numpy())
    image = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    return image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
