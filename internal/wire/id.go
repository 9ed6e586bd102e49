package wire

import (
	"crypto/rand"
	"math/big"
)

const base58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

const idChars = 22 // 58^22 > 2^128

// NewID makes prefix + "_01" + 22 base58 characters of 128 random bits.
func NewID(prefix string) string {
	return prefix + "_01" + RandomText()
}

// RandomText gives 128 random bits as 22 base58 characters, for ids and secrets.
func RandomText() string {
	var raw [16]byte
	// crypto/rand.Read never returns an error since Go 1.24; it ends the program instead.
	_, _ = rand.Read(raw[:])
	n, radix, digit := new(big.Int).SetBytes(raw[:]), big.NewInt(58), new(big.Int)
	out := make([]byte, idChars)
	for i := idChars - 1; i >= 0; i-- {
		n.DivMod(n, radix, digit)
		out[i] = base58[digit.Int64()]
	}
	return string(out)
}

// PlainID reports whether a text is made of letters, digits, '_' and '-' alone, of ASCII, and has 1 to most bytes.
func PlainID(s string, most int) bool {
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return s != "" && len(s) <= most
}
