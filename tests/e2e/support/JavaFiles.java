// What a Java program does with files: random access, channels, streams, mappings, names. Prints what it saw.
//
//     java JavaFiles.java DIRECTORY

import java.io.BufferedOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.zip.CRC32;

class JavaFiles {
    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[0]);
        randomAccess(directory.resolve("random"));
        channel(directory.resolve("channel"));
        appenders(directory.resolve("appended"));
        mapping(directory.resolve("mapped"));
        streams(directory.resolve("streamed"));
        names(directory);
    }

    static long sum(Path path) throws IOException {
        CRC32 crc = new CRC32();
        crc.update(Files.readAllBytes(path));
        return crc.getValue();
    }

    static void randomAccess(Path path) throws IOException {
        Random random = new Random(1);
        byte[] model = new byte[1 << 16];
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
            file.setLength(model.length);
            for (int round = 0; round < 3000; round++) {
                byte[] piece = new byte[1 + random.nextInt(300)];
                random.nextBytes(piece);
                int at = random.nextInt(model.length - piece.length);
                file.seek(at);
                file.write(piece);
                System.arraycopy(piece, 0, model, at, piece.length);
                if (round % 7 == 0) {
                    int from = random.nextInt(model.length - 500);
                    byte[] read = new byte[500];
                    file.seek(from);
                    file.readFully(read);
                    if (!Arrays.equals(read, Arrays.copyOfRange(model, from, from + 500))) {
                        throw new IOException("round " + round + ": other bytes than were written");
                    }
                }
            }
            file.getFD().sync();
            file.setLength(50_000);
            System.out.println("random " + file.getFilePointer() + " " + file.length());
        }
        System.out.println("random " + sum(path));
    }

    static void channel(Path path) throws IOException {
        try (FileChannel channel = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.READ,
                StandardOpenOption.WRITE)) {
            ByteBuffer buffer = ByteBuffer.allocateDirect(1024);
            for (int round = 0; round < 500; round++) {
                buffer.clear();
                while (buffer.hasRemaining()) {
                    buffer.putInt(round);
                }
                buffer.flip();
                if (round % 3 == 0) {
                    channel.write(buffer, 512L * (499 - round));
                } else {
                    channel.write(new ByteBuffer[] {buffer.slice(0, 100), buffer.slice(100, 924)});
                }
                if (round % 100 == 0) {
                    channel.force(round % 200 == 0);
                }
            }
            System.out.println("channel " + channel.position() + " " + channel.size());
            try (var lock = channel.lock(10, 20, false)) {
                System.out.println("locked " + lock.isValid());
            }
            try (FileChannel copy = FileChannel.open(path.resolveSibling("copied"), StandardOpenOption.CREATE,
                    StandardOpenOption.WRITE)) {
                System.out.println("transferred " + channel.transferTo(100, 100_000, copy));
            }
            channel.truncate(123_456);
        }
        System.out.println("channel " + sum(path) + " " + sum(path.resolveSibling("copied")));
    }

    static void appenders(Path path) throws Exception {
        Thread[] threads = new Thread[4];
        for (int nth = 0; nth < threads.length; nth++) {
            byte[] line = ("appended by " + nth + "\n").getBytes();
            threads[nth] = new Thread(() -> {
                try (FileOutputStream stream = new FileOutputStream(path.toFile(), true)) {
                    for (int round = 0; round < 500; round++) {
                        stream.write(line);
                    }
                } catch (IOException error) {
                    throw new RuntimeException(error);
                }
            });
            threads[nth].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        List<String> lines = Files.readAllLines(path);
        for (int nth = 0; nth < threads.length; nth++) {
            String line = "appended by " + nth;
            System.out.println(line + ": " + lines.stream().filter(line::equals).count());
        }
        // Their order is chance.
        Files.write(path, lines.stream().sorted().toList());
    }

    static void mapping(Path path) throws IOException {
        try (FileChannel channel = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.READ,
                StandardOpenOption.WRITE)) {
            for (int round = 0; round < 100; round++) {
                channel.write(ByteBuffer.wrap(("before " + round + "\n").getBytes()));
            }
            var mapped = channel.map(FileChannel.MapMode.READ_WRITE, 0, 8192);
            byte[] start = new byte[9];
            mapped.get(0, start);
            System.out.print("mapped " + new String(start));
            mapped.put(5000, "by the mapping".getBytes());
            mapped.force();
            ByteBuffer read = ByteBuffer.allocate(14);
            channel.read(read, 5000);
            System.out.println("read " + new String(read.array()));
            channel.write(ByteBuffer.wrap("by a write".getBytes()), 6000);
            byte[] seen = new byte[10];
            mapped.get(6000, seen);
            System.out.println("mapped " + new String(seen));
        }
        System.out.println("mapped " + sum(path));
    }

    static void streams(Path path) throws IOException {
        try (var stream = new BufferedOutputStream(new FileOutputStream(path.toFile()), 100)) {
            for (int round = 0; round < 20_000; round++) {
                stream.write(round % 251);
            }
        }
        int bytes = 0;
        try (FileInputStream stream = new FileInputStream(path.toFile())) {
            byte[] piece = new byte[777];
            for (int read = stream.read(piece); read > 0; read = stream.read(piece)) {
                bytes += read;
            }
        }
        System.out.println("streamed " + bytes + " " + sum(path));
    }

    static void names(Path directory) throws IOException {
        Path tree = Files.createDirectories(directory.resolve("tree/below"));
        for (int nth = 0; nth < 50; nth++) {
            Files.writeString(tree.resolve("file-" + nth), "text " + nth);
        }
        Files.move(tree.resolve("file-1"), tree.resolve("file-2"), StandardCopyOption.ATOMIC_MOVE);
        Files.copy(tree.resolve("file-3"), tree.resolve("copy"), StandardCopyOption.COPY_ATTRIBUTES);
        Files.createSymbolicLink(tree.resolve("link"), Path.of("copy"));
        Files.delete(tree.resolve("file-4"));
        try (var walk = Files.walk(directory.resolve("tree"))) {
            System.out.println("names " + walk.map(path -> path.getFileName().toString()).sorted().toList());
        }
        System.out.println("linked " + Files.readString(tree.resolve("link")));
    }
}
