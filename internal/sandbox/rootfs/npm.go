package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// nodeFiles lock what npm installs: names, versions and hashes, no address. npm asks the registry the host is set up
// with.
var nodeFiles = []string{"recipe/node/package.json", "recipe/node/package-lock.json"}

// nodeDir is where the libraries lie; /node_modules points there, so that require and import find them from every
// folder without a variable.
const nodeDir = "usr/local/lib"

// npmFlags: no scripts, because a library of this list that needs one should be noticed; nothing that phones home.
var npmFlags = []string{"ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--no-update-notifier"}

// installNode puts the locked Node libraries into the tree. The host's npm does it where there is one; otherwise
// Debian's npm, unpacked for this purpose in an overlay that is thrown away: with its hundred packages it has no place
// in the image.
func installNode(ctx context.Context, tree string) error {
	dir := filepath.Join(tree, nodeDir)
	if err := writeNodeFiles(dir); err != nil {
		return err
	}
	var err error
	if npm, lookErr := exec.LookPath("npm"); lookErr == nil {
		err = run(ctx, command{argv: append([]string{npm, "--prefix", dir}, npmFlags...), env: os.Environ()})
	} else {
		err = npmInOverlay(ctx, tree)
	}
	if err != nil {
		return fmt.Errorf("npm ci: %w", err)
	}
	return cleanNode(tree, dir)
}

func writeNodeFiles(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make node folder: %w", err)
	}
	for _, name := range nodeFiles {
		b, err := recipes.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read recipe: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, path.Base(name)), b, 0o644); err != nil {
			return fmt.Errorf("write node lock: %w", err)
		}
	}
	return nil
}

// cleanNode removes the lock files, npm's own one included: it may name the registry.
func cleanNode(tree, dir string) error {
	for _, name := range []string{"package.json", "package-lock.json", "node_modules/.package-lock.json"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("clean node folder: %w", err)
		}
	}
	if err := os.Symlink(path.Join(nodeDir, "node_modules"), filepath.Join(tree, "node_modules")); err != nil {
		return fmt.Errorf("link node folder: %w", err)
	}
	return nil
}

// unpackNPM puts Debian's npm into the overlay without installing it: dpkg takes a minute for 350 packages, and npm needs
// the files alone. Two thirds of them are there for what compiles and bundles, which npm ci does not ask for: apt is told
// that those are installed.
const unpackNPM = `
for name in webpack gyp libnode-dev; do
	printf 'Package: %s\nStatus: install ok installed\nVersion: 999:1\nArchitecture: all\nMaintainer: none\nDescription: none\n\n' $name
done >>/var/lib/dpkg/status
apt-get -qq update
apt-get -qq install --no-install-recommends --download-only npm
find /var/cache/apt/archives -name '*.deb' -print0 | xargs -0 -n 1 -P "$(nproc)" sh -c 'exec dpkg-deb -x "$1" /' unpack
`

func npmInOverlay(ctx context.Context, tree string) error {
	scratch, err := os.MkdirTemp(filepath.Dir(tree), "npm-")
	if err != nil {
		return fmt.Errorf("make overlay: %w", err)
	}
	for _, d := range []string{"upper", "work", "host"} {
		if err := os.Mkdir(filepath.Join(scratch, d), 0o755); err != nil {
			return fmt.Errorf("make overlay: %w", err)
		}
	}
	env, err := npmSettings(filepath.Join(scratch, "host"))
	if err != nil {
		return err
	}
	script := unpackNPM + "cd /" + nodeDir + "\nnpm " + strings.Join(npmFlags, " ")
	err = runInside(ctx, inside{
		tree: tree, argv: []string{"sh", "-euc", script}, root: true, network: true, overlay: scratch, env: env,
		bind: filepath.Join(scratch, "host"),
	})
	if err != nil {
		return err
	}
	made := filepath.Join(scratch, "upper", nodeDir, "node_modules")
	if err := os.Rename(made, filepath.Join(tree, nodeDir, "node_modules")); err != nil {
		return fmt.Errorf("take node libraries: %w", err)
	}
	return removeTree(scratch)
}

// npmSettings passes the host's settings on: its variables, and its npmrc files by copies that never enter the tree.
func npmSettings(dir string) ([]string, error) {
	var env []string
	for _, kv := range os.Environ() {
		name := strings.ToLower(kv[:strings.IndexByte(kv, '=')])
		if strings.HasPrefix(name, "npm_config_") || strings.HasSuffix(name, "_proxy") || name == "node_extra_ca_certs" {
			env = append(env, kv)
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return env, nil //nolint:nilerr // no home, so no settings in it
	}
	for name, file := range map[string]string{"USERCONFIG": filepath.Join(home, ".npmrc"), "GLOBALCONFIG": "/etc/npmrc"} {
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read npm settings: %w", err)
		}
		copied := filepath.Join(dir, strings.ToLower(name))
		if err := os.WriteFile(copied, b, 0o600); err != nil {
			return nil, fmt.Errorf("pass npm settings on: %w", err)
		}
		env = append(env, "NPM_CONFIG_"+name+"=/mnt/"+strings.ToLower(name))
	}
	return env, nil
}
