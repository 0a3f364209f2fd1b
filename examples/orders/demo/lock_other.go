//go:build !unix

package demo

import (
	"errors"
	"os"
)

func lockFile(string) (*os.File, error) {
	return nil, errors.New("keeping data is not supported on this system")
}
