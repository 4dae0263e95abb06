from anabranch.frontend.arrays.strings import join as join
from anabranch.io.gfile import (
    GFile as GFile,
    copy as copy,
    exists as exists,
    glob as glob,
    isdir as isdir,
    listdir as listdir,
    makedirs as makedirs,
    mkdir as mkdir,
    remove as remove,
    rename as rename,
    rmtree as rmtree,
    stat as stat,
    walk as walk,
)
