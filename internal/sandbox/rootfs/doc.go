// Package rootfs keeps the file trees that sandboxes start from: it builds them with mmdebstrap, imports and exports
// them as archives, and finds them by name.
//
// It refuses to know drivers, containers and users: a driver gets a host folder, nothing else. It serves nothing over
// the network, and it never picks a package mirror: mmdebstrap, npm and pip use what the host is set up with, and
// nothing of that set-up stays in the tree.
//
// Invariants:
//
//   - An image is one folder DIR/<name>-<digest>/ with rootfs/ and manifest.json. It appears by one rename after its
//     smoke check has passed, so a folder that is listed is whole. Names that begin with a dot are unfinished work.
//   - The digest covers what is in the tree (the recipe and the version of every package), so an image never changes
//     under a container that was started from it: a rebuild is a new folder beside the old one.
//   - The tree has the mount points a driver needs, the user sandbox (1000:1000), no device nodes, no setuid or setgid
//     bits, and no address of a registry or mirror besides Debian's own default.
//   - One build or import at a time per folder, across processes: an flock on DIR/.lock.
//   - [Image.Hold] is a shared flock on the manifest; [Store.Remove] refuses an image that is held.
//
// Files: rootfs.go (Store, Image), recipe.go and recipe/ (what each profile holds), build.go (the sequence),
// progress.go (mmdebstrap's output as phases), finish.go (mount points, user, clean-up), smoke.go (the check before
// publication), npm.go and wheels.go (what Debian lacks), import.go, unpack.go and layout.go (archives and OCI layouts
// in), export.go (archives out), publish.go (manifest and name), run.go (programs of the host and
// of a tree, in namespaces of their own), lock.go, sys_linux.go.
//
// No goroutine outlives the call that started it.
package rootfs
