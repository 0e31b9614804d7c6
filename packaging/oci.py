"""Writes an OCI image (layout 1.0.0, with the manifest of `docker load` beside) of one static program.

usage: oci.py PROGRAM VERSION ARCHIVE
"""

import gzip
import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def add(archive, name, data, mode=0o644):
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), mode, EPOCH
    archive.addfile(info, io.BytesIO(data))


def add_folder(archive, name, mode=0o755):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = tarfile.DIRTYPE, mode, EPOCH
    archive.addfile(info)


def stripped(program):
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "headwater"
        subprocess.run(["strip", "--strip-unneeded", "-o", copy, program], check=True)
        return copy.read_bytes()


def layer(program):
    """The root folder: the program, and the folders that it uses."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder, mode in (("tmp", 0o1777), ("usr", 0o755), ("usr/bin", 0o755), ("var", 0o755), ("var/lib", 0o755), ("var/lib/headwater", 0o755)):
            add_folder(archive, folder, mode)
        add(archive, "usr/bin/headwater", stripped(program), 0o755)
    return raw.getvalue()


def main():
    program, version, path = sys.argv[1:]
    if b"ld-linux" in subprocess.run(["readelf", "-l", program], check=True, capture_output=True).stdout:
        sys.exit(f"oci: {program} needs a dynamic linker, which the image lacks: build it with -C target-feature=+crt-static")
    content = layer(program)
    packed = gzip.compress(content, 9, mtime=0)
    blobs = {}

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    config = {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/headwater"],
            "WorkingDir": "/var/lib/headwater",
            "Env": ["PATH=/usr/bin", "XDG_STATE_HOME=/var/lib/headwater/.state"],
            "Labels": {"org.opencontainers.image.title": "headwater", "org.opencontainers.image.version": version},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
        "history": [{"created": created, "created_by": "packaging/oci.sh"}],
    }
    described_layer = blob(packed, "layer.v1.tar+gzip")
    described_config = blob(json.dumps(config, sort_keys=True).encode(), "config.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described_config,
        "layers": [described_layer],
    }
    described_manifest = blob(json.dumps(manifest, sort_keys=True).encode(), "manifest.v1+json")
    described_manifest["annotations"] = {"io.containerd.image.name": f"docker.io/library/headwater:{version}", "org.opencontainers.image.ref.name": version}
    described_manifest["platform"] = {"architecture": architecture, "os": "linux"}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [described_manifest]}
    name = lambda described: "blobs/sha256/" + described["digest"].removeprefix("sha256:")
    docker = [{"Config": name(described_config), "RepoTags": [f"headwater:{version}"], "Layers": [name(described_layer)]}]
    with tarfile.open(path, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        add_folder(archive, "blobs")
        add_folder(archive, "blobs/sha256")
        for digest, data in sorted(blobs.items()):
            add(archive, f"blobs/sha256/{digest}", data)
        add(archive, "index.json", json.dumps(index, sort_keys=True).encode())
        add(archive, "manifest.json", json.dumps(docker, sort_keys=True).encode())
        add(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
    print(f"{path} ({Path(path).stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
