"""An end of BitTorrent by libtorrent, without trackers, in a network of our own.

usage: torrent.py make FILE TORRENT
       torrent.py seed|peer TORRENT FOLDER ADDRESS PEER...
"""

import sys
import time

import libtorrent

PORT = 6881


def make(file, torrent):
    folder, name = file.rsplit("/", 1)
    creator = libtorrent.create_torrent(libtorrent.list_files(file))
    libtorrent.set_piece_hashes(creator, folder)
    with open(torrent, "wb") as out:
        out.write(libtorrent.bencode(creator.generate()))


def run(role, torrent, folder, address, peers):
    session = libtorrent.session({
        "listen_interfaces": f"{address}:{PORT}", "enable_dht": False, "enable_lsd": False, "enable_upnp": False, "enable_natpmp": False,
        "allow_multiple_connections_per_ip": True,
    })
    parameters = libtorrent.add_torrent_params()
    parameters.ti, parameters.save_path = libtorrent.torrent_info(torrent), folder
    if role == "seed":
        parameters.flags |= libtorrent.torrent_flags.seed_mode
    handle = session.add_torrent(parameters)
    print("ready", flush=True)
    is_told = False
    while True:
        for peer in peers:
            handle.connect_peer((peer, PORT))
        if handle.status().is_seeding and not is_told:
            is_told = True
            print("whole", flush=True)
        time.sleep(0.05 if not is_told else 1)


if __name__ == "__main__":
    make(*sys.argv[2:]) if sys.argv[1] == "make" else run(*sys.argv[1:5], sys.argv[5:])
