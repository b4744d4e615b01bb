#!/usr/bin/env bash
# Unpacks Debian's packages of aarch64 that a build links to, and a Python that qemu runs, into FOLDER/sysroot; the lists and downloads of
# apt are FOLDER's own, so that nothing of the system changes. For cmake/aarch64-linux-gnu.cmake. usage: tools/sysroot.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

runtime=(python3.11-venv python3-distutils ca-certificates libstdc++6 libsleef3 libfmt9 zlib1g)
headers=(libpython3.11-dev libsleef-dev libfmt-dev zlib1g-dev nlohmann-json3-dev catch2)  # the C library's come with the compiler
mkdir -p "$1"
folder=$(realpath "$1")
sysroot=$folder/sysroot
stamp=$folder/.stamp-sysroot
key="$sysroot $(cksum < tools/sysroot.sh)"
[ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$key" ] || exit 0
qemu=$(command -v qemu-aarch64-static) || die "no qemu-aarch64-static (Debian: qemu-user-static)"
command -v apt-get > /dev/null || die "no apt-get: the packages of aarch64 are Debian's"

rm -rf "$folder/apt" "$folder/packages" "$sysroot"
mkdir -p "$folder"/apt/{lists,archives}/partial "$folder/apt/wanted" "$sysroot"/usr/{bin,lib,libexec,sbin}
touch "$folder/apt/status"
cat > "$folder/apt/conf" << END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Dir::State "$folder/apt";
Dir::State::status "$folder/apt/status";
Dir::Cache "$folder/apt";
Acquire::Languages "none";
END
say "unpacking Debian's packages of aarch64 into ${sysroot#"$PWD"/}"
export APT_CONFIG=$folder/apt/conf
apt-get update -qq || die "apt-get update failed"
# With everything that they depend on; of those with headers nothing more.
apt-get install -y -qq --download-only --no-install-recommends "${runtime[@]}" > "$folder/apt/log" 2>&1 || { cat "$folder/apt/log"; exit 1; }
(cd "$folder/apt/wanted" && apt-get download -qq "${headers[@]}")
for name in bin lib sbin; do ln -s "usr/$name" "$sysroot/$name"; done
for package in "$folder"/apt/archives/*.deb "$folder"/apt/wanted/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$sysroot" --keep-directory-symlink
  # Whose a library is: the licence of what a wheel carries.
  dpkg-deb --fsys-tarfile "$package" | tar -t | sed "s|^\.|$(dpkg-deb -f "$package" Package): |" >> "$folder/packages"
done
find "$sysroot" -type l -lname '/*' | while read -r link; do  # absolute ones would lead out of it
  ln -sfn "$sysroot$(readlink "$link")" "$link"
done
# A script that any program can start: qemu needs no help of the kernel, virtual environments made with it link to it, and what
# Python takes for its own path is the script's.
mv "$sysroot/usr/bin/python3.11" "$sysroot/usr/libexec/python3.11"
cat > "$sysroot/usr/bin/python3.11" << END
#!/bin/sh
exec $qemu -L $sysroot -0 "\$0" $sysroot/usr/libexec/python3.11 "\$@"
END
chmod +x "$sysroot/usr/bin/python3.11"
"$sysroot/usr/bin/python3.11" -c 'import platform; assert platform.machine() == "aarch64"'
echo "$key" > "$stamp"
