public class Driver { public static void main(String[] a) {} }
