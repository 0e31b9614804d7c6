"""BLAKE3, as far as tests compare digests with files: hash and key derivation, 32 bytes of output. A megabyte takes some seconds."""

import struct

WORD = 0xFFFFFFFF
INITIAL = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
# Columns, then diagonals.
QUARTERS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
BLOCK, CHUNK, ROUNDS = 64, 1024, 7
CHUNK_START, CHUNK_END, PARENT, ROOT, CONTEXT, MATERIAL = 1, 2, 4, 8, 32, 64


def compress(chaining, block, counter, length, flags):
    """The chaining value of a block of words."""
    state = [*chaining, *INITIAL[:4], counter & WORD, counter >> 32, length, flags]
    for _ in range(ROUNDS):
        for number, (a, b, c, d) in enumerate(QUARTERS):
            for word, first, second in ((block[2 * number], 16, 12), (block[2 * number + 1], 8, 7)):
                state[a] = (state[a] + state[b] + word) & WORD
                mixed = state[d] ^ state[a]
                state[d] = (mixed >> first | mixed << 32 - first) & WORD
                state[c] = (state[c] + state[d]) & WORD
                mixed = state[b] ^ state[c]
                state[b] = (mixed >> second | mixed << 32 - second) & WORD
        block = [block[place] for place in PERMUTATION]
    return tuple(state[place] ^ state[place + 8] for place in range(8))


def chunk_value(key, content, counter, flags):
    """The chaining value of at most a chunk of content; with ROOT, the digest of content that has no more."""
    chaining, root = key, flags & ROOT
    blocks = [content[at:at + BLOCK] for at in range(0, len(content), BLOCK)] or [b""]
    for number, block in enumerate(blocks):
        place = (CHUNK_START if number == 0 else 0) | (CHUNK_END | root if number == len(blocks) - 1 else 0)
        words = list(struct.unpack("<16I", block.ljust(BLOCK, b"\0")))
        chaining = compress(chaining, words, counter, len(block), flags & ~ROOT | place)
    return chaining


def tree_value(key, content, counter, flags):
    """The chaining value of the tree over content: its left half is the largest power of two of chunks that leaves some."""
    if len(content) <= CHUNK:
        return chunk_value(key, content, counter, flags)
    half = 1 << ((len(content) - 1) // CHUNK).bit_length() - 1
    left, right = content[:half * CHUNK], content[half * CHUNK:]
    below = flags & ~ROOT
    children = tree_value(key, left, counter, below) + tree_value(key, right, counter + half, below)
    return compress(key, list(children), 0, BLOCK, flags | PARENT)


def digest(content, context=None):
    """The digest of content; with a context, the key that is derived from it and the content."""
    key, flags = INITIAL, 0
    if context is not None:
        key, flags = tree_value(INITIAL, context.encode(), 0, CONTEXT | ROOT), MATERIAL
    return struct.pack("<8I", *tree_value(key, content, 0, flags | ROOT))
