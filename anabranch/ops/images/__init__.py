"""Operations on images: codecs, resizing, boxes."""
