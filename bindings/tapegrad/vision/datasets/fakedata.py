"""Random images, to try a program without files."""

from ... import Generator, randint, randn
from ..transforms import functional as F
from .vision import VisionDataset

__all__ = ["FakeData"]


class FakeData(VisionDataset):
    """size random images of image_size (C, H, W) with a class each; sample i depends on i + random_offset only."""

    def __init__(self, size: int = 1000, image_size=(3, 224, 224), num_classes: int = 10, transform=None, target_transform=None,
                 random_offset: int = 0) -> None:
        super().__init__(transform=transform, target_transform=target_transform)
        self.size, self.num_classes, self.image_size, self.random_offset = size, num_classes, image_size, random_offset

    def __getitem__(self, index: int):
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        generator = Generator()
        generator.manual_seed(index + self.random_offset)
        image = randn(*self.image_size, generator=generator)
        target = randint(0, self.num_classes, (1,), generator=generator)[0]
        return self._transformed(F.to_pil_image(image), target.item())

    def __len__(self) -> int:
        return self.size
